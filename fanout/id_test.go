package fanout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
)

// messageAt is the id of a message of a time.
func messageAt(t rapid.TB, at int64, rest []byte) uuid.UUID {
	t.Helper()
	var u uuid.UUID
	copy(u[6:], rest)
	for i := range 6 {
		u[i] = byte(at >> (8 * (5 - i)))
	}
	u[6], u[8] = 7<<4|u[6]&0xf, 2<<6|u[8]&0x3f
	if u.Version() != 7 {
		t.Fatal("no UUIDv7")
	}
	return u
}

func anyMessage(t *rapid.T) uuid.UUID {
	at := rapid.Int64Range(Spread.Milliseconds(), 1<<48-1).Draw(t, "at")
	return messageAt(t, at, rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "rest"))
}

// anyUser is any receiver there can be.
func anyUser() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`u[0-9]{1,9}`), rapid.StringN(1, 128, maxUser),
		rapid.StringOfN(rapid.RuneFrom([]rune("\"\\\x00\x1f\x7f\n/<>&\u2028\u2029\U0001f600é")), 1, 30, maxUser)).Filter(usable)
}

func TestIDsAreUUIDv7(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message, user := anyMessage(t), anyUser().Draw(t, "user")
		id := ID(message, user)
		u, err := uuid.Parse(id)
		if err != nil || u.String() != id || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is no UUIDv7: %v", id, err)
		}
		behind := time.Duration(millis(message)-millis(u)) * time.Millisecond
		if behind < time.Minute || behind > Spread {
			t.Fatalf("%s is %v behind its message %s, want 1m to %v", id, behind, message, Spread)
		}
		if again := ID(message, strings.Clone(user)); again != id {
			t.Fatalf("%s, and then %s", id, again)
		}
	})
}

// An id that changes would be pushed twice.
func TestIDsStayAsTheyAre(t *testing.T) {
	message := uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21")
	for user, want := range map[string]string{
		"u1":    "0199f3b2-601a-76eb-8e70-c550e385f35c",
		"u2":    "0199f3c0-bfca-7671-8ce6-ae6fce5b10df",
		"Дарья": "0199f3b6-4432-7a82-b5b8-93d210c9e1c1",
	} {
		if got := ID(message, user); got != want {
			t.Errorf("id of %s: %s, want %s", user, got, want)
		}
	}
}

func TestIDsOfOthersDiffer(t *testing.T) {
	messages := []uuid.UUID{uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"), uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f22")}
	seen := make(map[string]bool)
	for _, m := range messages {
		for i := range 200_000 {
			seen[ID(m, fmt.Sprint("u", i))] = true
		}
	}
	if len(seen) != 400_000 {
		t.Errorf("%d ids of 400,000 receivers", len(seen))
	}
}

// What is emitted first has the earlier time: a part's rows lie together.
func TestIDsFollowTheirSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		message := anyMessage(t)
		a, b := anyUser().Draw(t, "a"), anyUser().Draw(t, "b")
		at := func(user string) int64 { return millis(uuid.MustParse(ID(message, user))) }
		if byTime, bySlice := at(a)-at(b), SliceOf(a)-SliceOf(b); byTime != int64(bySlice)*1000 {
			t.Fatalf("%d ms between slices that are %d apart", byTime, bySlice)
		}
	})
}

func TestSlicesAreEven(t *testing.T) {
	var in [Slices]int
	for i := range 100 * Slices {
		in[SliceOf(fmt.Sprint("user-", i))]++
	}
	for slice, n := range in {
		if n < 40 || n > 180 {
			t.Errorf("slice %d has %d of 102,400 users", slice, n)
		}
	}
	if got, want := SliceOf("u1"), int(push.UserHash("u1")>>54); got != want {
		t.Errorf("slice %d, want %d", got, want)
	}
}

func TestIDsAllocateNothing(t *testing.T) {
	message, user, out := uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21"), strings.Repeat("u", maxUser), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { out = AppendID(out[:0], message, user) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestMessageIDs(t *testing.T) {
	for id, good := range map[string]bool{
		"0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21":          true,
		"0199F3C2-7D1A-7C3E-9B1F-2A6C5D4E3F21":          false, // the same number, but not the same text: a receipt would not find it
		"urn:uuid:0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21": false,
		"0199f3c2-7d1a-4c3e-9b1f-2a6c5d4e3f21":          false, // has no time
		"0199f3c2-7d1a-7c3e-1b1f-2a6c5d4e3f21":          false, // of another variant
		"00000000-7d1a-7c3e-9b1f-2a6c5d4e3f21":          false, // its receivers' ids would be before 1970
		"k-3q2bBw":                                      false,
		"":                                              false,
	} {
		if _, err := ParseMessageID(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestPartitionsAreKafkas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		user, n := anyUser().Draw(t, "user"), rapid.Int32Range(1, 1000).Draw(t, "partitions")
		if got, want := PartitionOf(user, n), kafka.PartitionOf([]byte(user), int(n)); got != want {
			t.Fatalf("partition %d, want %d", got, want)
		}
	})
	// Of Kafka's own tests (UtilsTest.testMurmur2).
	for key, want := range map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107} {
		if got := int32(murmur2(key)); got != want {
			t.Errorf("murmur2 of %s: %d, want %d", key, got, want)
		}
	}
}

// A message's id counts for its sender, app and audience alone, each of which is a text of its
// own, and what is made of it has its time.
func TestMessageOf(t *testing.T) {
	id := uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21")
	other := id
	other[15]++
	usual := MessageOf(id, "orders", "shop", "snow")
	if usual != MessageOf(id, "orders", "shop", "snow") || checkMessageID(usual) != nil || millis(usual) != millis(id) {
		t.Errorf("%s is made of %s", usual, id)
	}
	seen := map[uuid.UUID]string{id: "itself", usual: "the usual"}
	for why, m := range map[string]uuid.UUID{
		"another id": MessageOf(other, "orders", "shop", "snow"), "another sender": MessageOf(id, "logins", "shop", "snow"),
		"another app": MessageOf(id, "orders", "bank", "snow"), "another topic": MessageOf(id, "orders", "shop", "rain"),
		"other borders": MessageOf(id, "orders", "shops", "now"), "none": MessageOf(id, "", "", ""), "made once more": MessageOf(usual, "orders", "shop", "snow"),
	} {
		if seen[m] != "" {
			t.Errorf("%s gives that of %s", why, seen[m])
		}
		seen[m] = why
	}
}
