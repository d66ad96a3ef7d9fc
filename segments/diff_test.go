package segments

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// exclusiveOf is a set of one exclusive group, in which a map says where each user
// is.
func exclusiveOf(t rapid.TB, version uint64, in map[uint32]string, segments ...string) *Set {
	var b Builder
	if err := b.AddGroup("g", true, ByRecord); err != nil {
		t.Fatal(err)
	}
	for _, name := range segments {
		var users []uint32
		for n, s := range in {
			if s == name {
				users = append(users, n)
			}
		}
		if err := b.AddUsers("g", name, UsersOf(users...)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build(version, noon)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is counted is what happened to each user.
func TestDiffIsThatOfMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := rapid.MapOf(rapid.Uint32Range(0, 40), rapid.SampledFrom([]string{"a", "b", "c"}))
		before, after := state.Draw(t, "before"), state.Draw(t, "after")
		d := Diff(exclusiveOf(t, 1, before, "a", "b", "c"), exclusiveOf(t, 2, after, "a", "b", "c"))
		if len(d) != 1 || len(d[0].Segments) != 3 {
			t.Fatalf("%+v", d)
		}
		want, changed := map[Move]uint64{}, map[string]*SegmentDiff{"a": {}, "b": {}, "c": {}, "": {}}
		for n := range uint32(41) {
			from, to := before[n], after[n]
			changed[from].Before++
			changed[to].After++
			if from != to {
				want[Move{From: from, To: to}]++
				changed[from].Went++
				changed[to].Came++
			}
		}
		got := map[Move]uint64{}
		for _, m := range d[0].Moves {
			got[Move{From: m.From, To: m.To}] += m.Users
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		for _, s := range d[0].Segments {
			c := changed[s.Segment]
			if c.Segment = s.Segment; *c != s {
				t.Fatalf("%+v, want %+v", s, *c)
			}
		}
		if d[0].Differs() != !maps.Equal(before, after) {
			t.Fatalf("differs: %v", d[0].Differs())
		}
	})
}

func TestDiffOfGroupsThatComeAndGo(t *testing.T) {
	two := lifecycle(t, 1)
	one := exclusiveOf(t, 2, map[uint32]string{1: "x"}, "x")
	none := []Move{}
	want := []GroupDiff{
		{Group: "g", Segments: []SegmentDiff{{Segment: "x", Before: 1, Went: 1}}, Moves: none, Properties: []string{}},
		{Group: "lifecycle", Segments: []SegmentDiff{{"new", 0, 8575, 8575, 0}, {"active", 0, 200_003, 200_003, 0}, {"asleep", 0, 0, 0, 0}}, Moves: none, Properties: []string{}},
		{Group: "interests", Segments: []SegmentDiff{{"shoes", 0, 3, 3, 0}, {"hats", 0, 66_669, 66_669, 0}}, Moves: none, Properties: []string{}},
	}
	if d := Diff(one, two); !reflect.DeepEqual(d, want) {
		t.Errorf("%+v", d)
	}
	var b Builder
	if err := b.AddGroup("g", false, ByID); err != nil {
		t.Fatal(err)
	}
	if err := b.AddUsers("g", "x", UsersOf(1)); err != nil {
		t.Fatal(err)
	}
	other, err := b.Build(1, noon)
	if err != nil {
		t.Fatal(err)
	}
	if d := Diff(one, other); !slices.Equal(d[0].Properties, []string{"exclusive", "numbers"}) || !d[0].Differs() || len(d[0].Moves) != 0 {
		t.Errorf("%+v", d)
	}
}
