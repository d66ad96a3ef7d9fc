package segments

import (
	"iter"
	"slices"
	"strings"
)

// Set is one version of all groups. It never changes, and is safe for concurrent
// use. Builder and Read make one.
type Set struct {
	manifest Manifest
	checksum Checksum
	head     []byte // what a file has before the sections
	groups   []Group
	byName   map[string]*Group
}

// Group is a group of segments in a Set.
type Group struct {
	info     *GroupInfo
	segments []Segment
	names    []string // of the segments, as group/segment
}

// Segment is a segment of a group.
type Segment struct {
	Name string
	Users
}

// newSet makes a set of a checked manifest, its head and the bitmaps of its
// segments, in the same order.
func newSet(m *Manifest, head []byte, users [][]Users) *Set {
	s := &Set{manifest: *m, checksum: checksumOf(head), head: head, groups: make([]Group, len(m.Groups)), byName: make(map[string]*Group, len(m.Groups))}
	for i := range m.Groups {
		g := &s.groups[i]
		g.info = &m.Groups[i]
		for j, u := range users[i] {
			name := g.info.Segments[j].Name
			g.segments = append(g.segments, Segment{Name: name, Users: u})
			g.names = append(g.names, g.info.Name+"/"+name)
		}
		s.byName[g.info.Name] = g
	}
	return s
}

// Version is the set's version, at least 1.
func (s *Set) Version() uint64 { return s.manifest.Version }

// Checksum stands for the whole content.
func (s *Set) Checksum() Checksum { return s.checksum }

// Manifest describes the set. It is the caller's.
func (s *Set) Manifest() Manifest {
	m := s.manifest
	m.Groups = slices.Clone(m.Groups)
	for i := range m.Groups {
		m.Groups[i].Segments = slices.Clone(m.Groups[i].Segments)
	}
	return m
}

// Bytes is the memory that the bitmaps take, roughly.
func (s *Set) Bytes() (n uint64) {
	for i := range s.groups {
		for _, seg := range s.groups[i].segments {
			n += seg.Bytes()
		}
	}
	return n
}

// Groups yields the groups in the order of the file.
func (s *Set) Groups() iter.Seq[*Group] {
	return func(yield func(*Group) bool) {
		for i := range s.groups {
			if !yield(&s.groups[i]) {
				return
			}
		}
	}
}

// Group finds a group by its name; nil if there is none. To look up many users,
// keep it for as long as the set: that saves the search.
func (s *Set) Group(name string) *Group { return s.byName[name] }

// Of is the segment of a group that a user is in: in an exclusive group the only one,
// else the first one in the order of the file. ok is false if there is none, or
// no such group. It does not allocate.
func (s *Set) Of(group string, number uint32) (segment string, ok bool) {
	g := s.byName[group]
	if g == nil {
		return "", false
	}
	return g.Of(number)
}

// AppendNames appends the names of all segments that a user is in, each as group/segment, in
// the order of the file. id is the user's, number that of the user's record, if
// it has one. It allocates only if names is too small.
func (s *Set) AppendNames(names []string, id string, number uint32, recorded bool) []string {
	for i := range s.groups {
		g := &s.groups[i]
		n, ok := g.info.Numbers.Of(id, number, recorded)
		if !ok {
			continue
		}
		for j := range g.segments {
			if g.segments[j].Contains(n) {
				names = append(names, g.names[j])
			}
		}
	}
	return names
}

// Has reports whether there is a segment of this name, as group/segment.
func (s *Set) Has(name string) bool {
	group, segment, _ := strings.Cut(name, "/")
	g := s.byName[group]
	if g == nil {
		return false
	}
	_, found := g.Segment(segment)
	return found
}

// Name is the group's name.
func (g *Group) Name() string { return g.info.Name }

// Exclusive reports whether a user is in one segment of the group at most.
func (g *Group) Exclusive() bool { return g.info.Exclusive }

// Numbers says where the numbers of the group's users come from.
func (g *Group) Numbers() Numbering { return g.info.Numbers }

// Segments yields the segments in the order of the file.
func (g *Group) Segments() iter.Seq[Segment] { return slices.Values(g.segments) }

// Segment finds a segment by its name.
func (g *Group) Segment(name string) (Segment, bool) {
	i := slices.IndexFunc(g.segments, func(s Segment) bool { return s.Name == name })
	if i < 0 {
		return Segment{}, false
	}
	return g.segments[i], true
}

// Of is Set.Of for this group.
func (g *Group) Of(number uint32) (segment string, ok bool) {
	for i := range g.segments {
		if g.segments[i].Contains(number) {
			return g.segments[i].Name, true
		}
	}
	return "", false
}

// AppendOf appends the names of all segments that a user is in, in the order of
// the file. It allocates only if dst is too small.
func (g *Group) AppendOf(dst []string, number uint32) []string {
	for i := range g.segments {
		if g.segments[i].Contains(number) {
			dst = append(dst, g.segments[i].Name)
		}
	}
	return dst
}

// checkExclusive checks that nobody is in two segments of an exclusive group.
func (s *Set) checkExclusive() error {
	for i := range s.groups {
		if g := &s.groups[i]; g.info.Exclusive {
			if err := g.checkExclusive(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Group) checkExclusive() error {
	before := Union(g.segments[0].Users)
	for i := 1; i < len(g.segments); i++ {
		seg := &g.segments[i]
		if before.bitmap.Intersects(seg.bitmap) {
			return g.overlap(i)
		}
		before.bitmap.Or(seg.bitmap) // ours: Union copies
	}
	return nil
}

// overlap says which earlier segment shares users with segment i.
func (g *Group) overlap(i int) error {
	for j := range i {
		both := Intersection(g.segments[j].Users, g.segments[i].Users)
		for first := range both.All() {
			return refusef(RefusedOverlap, "group %s is exclusive, and %d users are in both %s and %s, user number %d is the first",
				g.info.Name, both.Count(), g.segments[j].Name, g.segments[i].Name, first)
		}
	}
	return nil
}
