package segments

import "slices"

// GroupDiff is how a group differs between two sets.
type GroupDiff struct {
	Group    string        `json:"group"`
	Segments []SegmentDiff `json:"segments"`
	// Moves count the users who have changed segments; only groups that are exclusive
	// in both sets have them.
	Moves []Move `json:"moves"`
	// Properties are the properties that differ: "exclusive", "numbers".
	Properties []string `json:"properties"`
}

// SegmentDiff is how a segment differs: users before, after, and how many came
// and went.
type SegmentDiff struct {
	Segment string `json:"segment"`
	Before  uint64 `json:"before"`
	After   uint64 `json:"after"`
	Came    uint64 `json:"came"`
	Went    uint64 `json:"went"`
}

// Move is how many users went from one segment to another; an empty name
// means no segment.
type Move struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Users uint64 `json:"users"`
}

// Differs reports whether there is any difference.
func (d *GroupDiff) Differs() bool {
	return len(d.Properties) > 0 || slices.ContainsFunc(d.Segments, func(s SegmentDiff) bool { return s.Came+s.Went > 0 })
}

// Diff compares two sets, group by group: those of the old one in its order, then the new
// ones. A group or segment that is missing in one of them counts as empty.
func Diff(old, later *Set) []GroupDiff {
	diffs := []GroupDiff{}
	for g := range old.Groups() {
		diffs = append(diffs, diffGroups(g, later.Group(g.Name())))
	}
	for g := range later.Groups() {
		if old.Group(g.Name()) == nil {
			diffs = append(diffs, diffGroups(nil, g))
		}
	}
	return diffs
}

// diffGroups compares two versions of a group, one of which may be missing.
func diffGroups(old, later *Group) GroupDiff {
	var before, after []Segment
	d := GroupDiff{Segments: []SegmentDiff{}, Moves: []Move{}, Properties: []string{}}
	if old != nil {
		d.Group, before = old.Name(), old.segments
	}
	if later != nil {
		d.Group, after = later.Name(), later.segments
	}
	for _, name := range names(before, after) {
		a, b := usersIn(before, name), usersIn(after, name)
		same := common(a, b)
		d.Segments = append(d.Segments, SegmentDiff{Segment: name, Before: a.Count(), After: b.Count(), Came: b.Count() - same, Went: a.Count() - same})
	}
	if old == nil || later == nil {
		return d
	}
	if old.Exclusive() != later.Exclusive() {
		d.Properties = append(d.Properties, "exclusive")
	}
	if old.Numbers() != later.Numbers() {
		d.Properties = append(d.Properties, "numbers")
	}
	if old.Exclusive() && later.Exclusive() {
		d.Moves = moves(before, after)
	}
	return d
}

// moves counts who changed segments of an exclusive group.
func moves(before, after []Segment) []Move {
	moved := []Move{}
	add := func(from, to string, users uint64) {
		if users > 0 {
			moved = append(moved, Move{From: from, To: to, Users: users})
		}
	}
	for _, a := range before {
		left := a.Count() // not in any segment now
		for _, b := range after {
			n := common(a.Users, b.Users)
			if left -= n; a.Name != b.Name {
				add(a.Name, b.Name, n)
			}
		}
		add(a.Name, "", left)
	}
	for _, b := range after {
		fresh := b.Count()
		for _, a := range before {
			fresh -= common(a.Users, b.Users)
		}
		add("", b.Name, fresh)
	}
	return moved
}

// common is how many users two sets have in common.
func common(a, b Users) uint64 {
	if a.bitmap == nil || b.bitmap == nil {
		return 0
	}
	return a.bitmap.AndCardinality(b.bitmap)
}

// names are the names of all segments, the old ones first.
func names(before, after []Segment) (all []string) {
	for _, s := range slices.Concat(before, after) {
		if !slices.Contains(all, s.Name) {
			all = append(all, s.Name)
		}
	}
	return all
}

func usersIn(segments []Segment, name string) Users {
	for _, s := range segments {
		if s.Name == name {
			return s.Users
		}
	}
	return Users{}
}
