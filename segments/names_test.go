package segments

import (
	"slices"
	"testing"
)

// All segments of a user by name: each group counts users in its own way.
func TestAppendNames(t *testing.T) {
	var b Builder
	for _, err := range []error{
		b.AddGroup("lifecycle", true, ByRecord), b.AddGroup("buyers", true, ByID), b.AddGroup("interests", false, ByRecord),
		b.AddUsers("lifecycle", "new", UsersOf(0, 7)), b.AddUsers("lifecycle", "active", UsersOf(8)),
		b.AddUsers("buyers", "often", UsersOf(7, 8)),
		b.AddUsers("interests", "shoes", UsersOf(7)), b.AddUsers("interests", "hats", UsersOf(7, 8)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build(1, noon)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why      string
		id       string
		number   uint32
		recorded bool
		want     []string
	}{
		{"in several of one group, in the order of the file", "ada", 7, true, []string{"lifecycle/new", "interests/shoes", "interests/hats"}},
		{"0 is a number", "bob", 0, true, []string{"lifecycle/new"}},
		{"no number", "cleo", 0, false, nil},
		{"the id is one", "7", 0, false, []string{"buyers/often"}},
		{"both", "8", 7, true, []string{"lifecycle/new", "buyers/often", "interests/shoes", "interests/hats"}},
		{"in none", "dora", 99, true, nil},
	} {
		before := []string{"kept"}
		if got := s.AppendNames(before, tt.id, tt.number, tt.recorded); !slices.Equal(got[1:], tt.want) || got[0] != "kept" {
			t.Errorf("%s: %q, want %q", tt.why, got[1:], tt.want)
		}
	}
	names := make([]string, 0, 8)
	if n := testing.AllocsPerRun(100, func() { _ = s.AppendNames(names, "8", 7, true) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for name, want := range map[string]bool{"lifecycle/new": true, "lifecycle/often": false, "nothing/new": false, "lifecycle": false, "": false, "lifecycle/": false} {
		if got := s.Has(name); got != want {
			t.Errorf("Has(%q) is %t", name, got)
		}
	}
}
