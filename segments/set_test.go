package segments

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// model is a set of numbers as a map.
type model map[uint32]bool

func modelOf(u Users) model {
	m := model{}
	for n := range u.All() {
		m[n] = true
	}
	return m
}

func drawUsers(t *rapid.T, label string) (Users, model) {
	u := Users{bitmap: drawBitmap(t, label)}
	return u, modelOf(u)
}

// Every operation is that of the maps, and changes none of the sets it was given.
func TestAlgebraIsThatOfMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, ma := drawUsers(t, "a")
		b, mb := drawUsers(t, "b")
		c, mc := drawUsers(t, "c")
		equal := func(what string, got Users, in func(n uint32) bool) {
			want := model{}
			for _, m := range []model{ma, mb, mc} {
				for n := range m {
					if in(n) {
						want[n] = true
					}
				}
			}
			if got.Count() != uint64(len(want)) {
				t.Fatalf("%s: %d users, want %d", what, got.Count(), len(want))
			}
			last := int64(-1)
			for n := range got.All() {
				if !want[n] || !got.Contains(n) || int64(n) <= last {
					t.Fatalf("%s: %d after %d", what, n, last)
				}
				last = int64(n)
			}
		}
		equal("union", Union(a, b, c), func(n uint32) bool { return ma[n] || mb[n] || mc[n] })
		equal("union of one", Union(a), func(n uint32) bool { return ma[n] })
		equal("union of none", Union(), func(uint32) bool { return false })
		equal("intersection", Intersection(a, b, c), func(n uint32) bool { return ma[n] && mb[n] && mc[n] })
		equal("intersection of one", Intersection(a), func(n uint32) bool { return ma[n] })
		equal("intersection of none", Intersection(), func(uint32) bool { return false })
		equal("difference", Difference(a, b, c), func(n uint32) bool { return ma[n] && !mb[n] && !mc[n] })
		equal("difference from nothing else", Difference(a), func(n uint32) bool { return ma[n] })
		equal("with an empty one", Union(a, Users{}), func(n uint32) bool { return ma[n] })
		equal("a, afterwards", a, func(n uint32) bool { return ma[n] })
		equal("b, afterwards", b, func(n uint32) bool { return mb[n] })
		first := rapid.Uint32Range(0, 6<<16).Draw(t, "first")
		for n := range a.From(first) {
			if n < first {
				t.Fatalf("From(%d) yields %d", first, n)
			}
			delete(ma, n)
		}
		for n := range ma {
			if n >= first {
				t.Fatalf("From(%d) leaves out %d", first, n)
			}
		}
	})
}

func TestEnumerationStops(t *testing.T) {
	u := span(10, 100, 10)
	var got []uint32
	for n := range u.From(35) {
		if got = append(got, n); len(got) == 2 {
			break
		}
	}
	if !slices.Equal(got, []uint32{40, 50}) {
		t.Errorf("%d", got)
	}
	for n := range (Users{}).All() {
		t.Errorf("the empty set has %d", n)
	}
	if (Users{}).Contains(0) || (Users{}).Count() != 0 || (Users{}).Bytes() != 0 {
		t.Error("the empty set is not empty")
	}
	if got := slices.Collect(UsersOf(3, MaxNumber).From(MaxNumber)); !slices.Equal(got, []uint32{MaxNumber}) {
		t.Errorf("from the last number on: %d", got)
	}
}

func TestLookUp(t *testing.T) {
	s := lifecycle(t, 1)
	for _, tt := range []struct {
		group  string
		number uint32
		want   string // empty = none
	}{
		{"lifecycle", 0, "new"},
		{"lifecycle", MaxNumber, "new"},
		{"lifecycle", 100_007, "new"},
		{"lifecycle", 100_008, ""},
		{"lifecycle", 200_000, "active"},
		{"lifecycle", 400_000, "active"},
		{"lifecycle", 400_001, ""},
		{"interests", 3, "shoes"}, // in hats, too; the first one in the file
		{"interests", 4, "hats"},
		{"interests", 5, ""},
		{"colours", 1, ""}, // no such group
	} {
		if got, ok := s.Of(tt.group, tt.number); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s of %d: %q, %v", tt.group, tt.number, got, ok)
		}
	}
	if got := s.Group("interests").AppendOf([]string{"x"}, 3); !slices.Equal(got, []string{"x", "shoes", "hats"}) {
		t.Errorf("all segments of 3: %s", got)
	}
	if s.Group("colours") != nil {
		t.Error("a group that is not there")
	}
	if _, ok := s.Group("interests").Segment("ties"); ok {
		t.Error("a segment that is not there")
	}
	if g := s.Group("interests"); g.Exclusive() || g.Numbers() != ByHash || !s.Group("lifecycle").Exclusive() {
		t.Error("the properties of groups are mixed up")
	}
}

func TestLookUpsDoNotAllocate(t *testing.T) {
	s := lifecycle(t, 1)
	names := make([]string, 0, 4)
	if n := testing.AllocsPerRun(100, func() {
		for _, number := range []uint32{0, 5, 100_007, 250_000, MaxNumber} {
			s.Of("lifecycle", number)
			names = s.Group("interests").AppendOf(names[:0], number)
			ByID.Of("4294967295", 0, false)
			ByHash.Of("u42", 0, false)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// With -race: algebra on a set that others read changes nothing of it.
func TestASetIsSafeForConcurrentUse(t *testing.T) {
	built := lifecycle(t, 1)
	s := readBack(t, built)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, s := range []*Set{s, built} {
				g := s.Group("interests")
				shoes, _ := g.Segment("shoes")
				hats, _ := g.Segment("hats")
				all := Union(shoes.Users, hats.Users)
				if both := Intersection(shoes.Users, hats.Users); Difference(all, both).Count() != all.Count()-1 {
					t.Errorf("%d users in both", both.Count())
				}
				if got, _ := s.Of("lifecycle", 250_000); got != "active" {
					t.Errorf("250,000 is in %q", got)
				}
				fileOf(t, s)
			}
		})
	}
	wg.Wait()
}

func TestBytes(t *testing.T) {
	s := lifecycle(t, 1)
	m := s.Manifest()
	if n, sections := s.Bytes(), uint64(m.Bytes()); n < sections/2 || n > 2*sections {
		t.Errorf("%d bytes in memory, %d in the file", n, sections)
	}
	if n := len(fileOf(t, s)); m.FileBytes() != int64(n) {
		t.Errorf("%d bytes announced, the file has %d", m.FileBytes(), n)
	}
}

func TestNumberingAsAFlag(t *testing.T) {
	var n Numbering
	for _, want := range []Numbering{ByRecord, ByID, ByHash} {
		if err := n.Set(string(want)); err != nil || n != want || n.String() != string(want) {
			t.Errorf("%s: %s, %v", want, n, err)
		}
	}
	if err := n.Set("rank"); err == nil || n != ByHash {
		t.Errorf("rank: %s, %v", n, err)
	}
}

// The manifest is the caller's.
func TestManifestIsACopy(t *testing.T) {
	s := lifecycle(t, 1)
	m := s.Manifest()
	m.Groups[0].Name, m.Groups[0].Segments[0].Name = "x", "y"
	if again := s.Manifest(); again.Groups[0].Name != "lifecycle" || again.Groups[0].Segments[0].Name != "new" {
		t.Errorf("%+v", again)
	}
}

func TestNumberings(t *testing.T) {
	for _, tt := range []struct {
		numbering Numbering
		id        string
		record    uint32
		recorded  bool
		want      uint32
		ok        bool
	}{
		{ByRecord, "42", 7, true, 7, true},
		{ByRecord, "42", 0, true, 0, true}, // 0 is a number
		{ByRecord, "42", 0, false, 0, false},
		{ByID, "42", 7, true, 42, true},
		{ByID, "0", 0, false, 0, true},
		{ByID, "4294967295", 0, false, MaxNumber, true},
		{ByID, "4294967296", 0, false, 0, false},
		{ByID, "042", 0, false, 0, false}, // another user than 42
		{ByID, "u42", 0, false, 0, false},
		{ByID, "-1", 0, false, 0, false},
		{ByID, "", 0, false, 0, false},
		{ByHash, "u42", 7, true, 0xf480d9c1, true}, // xxhash64 of u42
		{"rank", "42", 7, true, 0, false},
	} {
		if got, ok := tt.numbering.Of(tt.id, tt.record, tt.recorded); got != tt.want || ok != tt.ok {
			t.Errorf("%s of %q and %d, %v: %#x, %v", tt.numbering, tt.id, tt.record, tt.recorded, got, ok)
		}
	}
	for text, rule := range map[string]string{
		"":                     "not a decimal number",
		"12a":                  "not a decimal number",
		"1 2":                  "not a decimal number",
		"+1":                   "not a decimal number",
		"99999999999999999999": "over 4294967295", // over 64 bits as well
		"18446744073709551617": "over 4294967295", // 1, if it wrapped
		"4294967296":           "over 4294967295",
		"99999999999999999x":   "not a decimal number",
		"00":                   "leading zeros",
	} {
		if _, err := parseNumber(text); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("%q: %v, want %q", text, err, rule)
		}
	}
}

func readBack(t testing.TB, s *Set) *Set {
	t.Helper()
	read, err := Read(strings.NewReader(string(fileOf(t, s))), 0)
	if err != nil {
		t.Fatal(err)
	}
	return read
}
