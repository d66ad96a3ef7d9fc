package shards

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestTagsSitEvenlyInTheCluster(t *testing.T) {
	seen := map[string]bool{}
	for s := range Users {
		if got, want := Slot("u:{"+UserTag(s)+"}:anyone"), 64*s; got != want {
			t.Errorf("user shard %d is at slot %d, want %d", s, got, want)
		}
		if seen[UserTag(s)] {
			t.Errorf("tag %q is used twice", UserTag(s))
		}
		seen[UserTag(s)] = true
	}
	for k := range Filters {
		if got, want := Slot(FilterKey(k, 7)), 256*k; got != want {
			t.Errorf("filter shard %d is at slot %d, want %d", k, got, want)
		}
	}
}

// The names and numbers that stored data depends on: a change here loses every
// key in every installation.
func TestStoredNamesDoNotChange(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{UserKey(0, "u42"), "u:{3560}:u42"},
		{LimiterKey(1, "u42"), "l:{11423}:u42"},
		{BucketKey(1, 0xbeef, "orders"), "b:{11423}:beef:orders"},
		{CollapseKey(255, "u42"), "c:{21503}:u42"},
		{EpochKey(2), "e:{40821}"},
		{OffsetsKey(2), "o:{40821}"},
		{FilterKey(0, 123), "d:{3560}:123"},
		{FilterKey(63, 123), "d:{" + UserTag(252) + "}:123"},
		{TokenKey(1, "abc"), "t:{2464}:abc"},
		{strconv.Itoa(UserShard("u42")), "193"},
		{strconv.Itoa(FilterShard("u42")), "1"},
		{strconv.Itoa(TokenShard("u42")), "1"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestSlotIsThatOfRedis(t *testing.T) {
	for _, c := range []struct {
		key  string
		want int
		why  string
	}{
		{"123456789", 0x31C3, "the check value of CRC16/XMODEM"},
		{"foo", 12182, "CLUSTER KEYSLOT foo"},
		{"{user1000}.following", Slot("user1000"), "only the tag counts"},
		{"foo{}{bar}", 8363, "an empty tag counts as none"},
		{"foo{{bar}}zap", Slot("{bar"), "the tag ends at the first brace"},
		{"foo{bar}{zap}", Slot("bar"), "the first tag counts"},
		{"foo{bar", Slot("foo{bar"), "an open brace alone is no tag"},
	} {
		if got := Slot(c.key); got != c.want {
			t.Errorf("slot of %q is %d, want %d: %s", c.key, got, c.want, c.why)
		}
	}
}

func TestNamesAgreeWithTheKeyFunctions(t *testing.T) {
	var n Names
	for round := range 3 {
		n.Reset()
		var want []string
		for i := range 20 * round {
			owner := "user" + strconv.Itoa(i)
			s := UserShard(owner)
			n.User(s, owner)
			n.Limiter(s, owner)
			n.Collapse(s, owner)
			want = append(want, UserKey(s, owner), LimiterKey(s, owner), CollapseKey(s, owner))
		}
		if got := n.List(); !slices.Equal(got, want) {
			t.Fatalf("round %d: got %q, want %q", round, got, want)
		}
	}
}

func TestGroupsAreAStableOrderByShard(t *testing.T) {
	var g Groups // reused over all cases: old content must not show
	rapid.Check(t, func(t *rapid.T) {
		shards := rapid.IntRange(1, 300).Draw(t, "shards")
		of := rapid.SliceOfN(rapid.IntRange(-1, shards-1), 0, 400).Draw(t, "of")
		g.Arrange(len(of), shards, func(i int) int { return of[i] })
		want := map[int][]int32{}
		for i, s := range of {
			if s >= 0 {
				want[s] = append(want[s], int32(i))
			}
		}
		last := -1
		for s, idx := range g.All() {
			if s <= last {
				t.Fatalf("shard %d after %d", s, last)
			}
			if last = s; !slices.Equal(idx, want[s]) {
				t.Fatalf("shard %d has %v, want %v", s, idx, want[s])
			}
			delete(want, s)
		}
		if len(want) > 0 {
			t.Fatalf("missing %v", want)
		}
	})
}

func BenchmarkGroups(b *testing.B) {
	owners := make([]string, 10_000)
	for i := range owners {
		owners[i] = "user-" + strconv.Itoa(rand.Int())
	}
	var g Groups
	var n Names
	b.ReportAllocs()
	for b.Loop() {
		g.Arrange(len(owners), Users, func(i int) int { return UserShard(owners[i]) })
		n.Reset()
		for s, idx := range g.All() {
			for _, i := range idx {
				n.User(s, owners[i])
			}
		}
		n.List()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/item")
}
