package segments

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
)

// Builder makes a Set from lists of users. Not safe for concurrent use.
type Builder struct {
	groups  []GroupInfo
	bitmaps [][]*roaring.Bitmap
}

// AddGroup adds a group without segments. An exclusive one cannot be numbered by
// hashes.
func (b *Builder) AddGroup(name string, exclusive bool, numbers Numbering) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("group %q: %w", name, err)
	}
	if b.group(name) >= 0 {
		return fmt.Errorf("group %s was added already", name)
	}
	if err := numbers.check(exclusive); err != nil {
		return fmt.Errorf("group %s: %w", name, err)
	}
	b.groups = append(b.groups, GroupInfo{Name: name, Exclusive: exclusive, Numbers: numbers})
	b.bitmaps = append(b.bitmaps, nil)
	return nil
}

func (b *Builder) group(name string) int {
	for i := range b.groups {
		if b.groups[i].Name == name {
			return i
		}
	}
	return -1
}

// segment finds a segment of an added group, or adds it.
func (b *Builder) segment(group, name string) (*GroupInfo, *roaring.Bitmap, error) {
	i := b.group(group)
	if i < 0 {
		return nil, nil, fmt.Errorf("no group %q was added", group)
	}
	g := &b.groups[i]
	for j := range g.Segments {
		if g.Segments[j].Name == name {
			return g, b.bitmaps[i][j], nil
		}
	}
	if err := checkName(name); err != nil {
		return nil, nil, fmt.Errorf("segment %q: %w", name, err)
	}
	g.Segments = append(g.Segments, SegmentInfo{Name: name})
	b.bitmaps[i] = append(b.bitmaps[i], roaring.New())
	return g, b.bitmaps[i][len(b.bitmaps[i])-1], nil
}

// AddUsers adds users to a segment of an added group. A segment exists from
// its first users on, which may be none.
func (b *Builder) AddUsers(group, segment string, users Users) error {
	_, bitmap, err := b.segment(group, segment)
	if err != nil {
		return err
	}
	if users.bitmap != nil {
		bitmap.Or(users.bitmap)
	}
	return nil
}

// Build makes the Set and leaves the Builder empty. version is at least 1; see
// VersionAt. The error is a RefusedError if a user is in two segments of an
// exclusive group.
func (b *Builder) Build(version uint64, built time.Time) (*Set, error) {
	m := &Manifest{Version: version, Built: built.UTC().Truncate(time.Second), Groups: b.groups}
	users := make([][]Users, len(b.bitmaps))
	for i := range b.bitmaps {
		for _, bitmap := range b.bitmaps[i] {
			bitmap.RunOptimize()
			users[i] = append(users[i], Users{bitmap: bitmap})
		}
	}
	*b = Builder{}
	return assemble(m, users)
}

// assemble fills in what the manifest says of the sections, and makes the set.
func assemble(m *Manifest, users [][]Users) (*Set, error) {
	for i := range m.Groups {
		if len(m.Groups[i].Segments) == 0 {
			return nil, fmt.Errorf("group %s has no segment", m.Groups[i].Name)
		}
		for j := range m.Groups[i].Segments {
			if err := describe(&m.Groups[i].Segments[j], users[i][j]); err != nil {
				return nil, err
			}
		}
	}
	head, err := m.encode()
	if err != nil {
		return nil, err
	}
	s := newSet(m, head, users)
	if err := s.checkExclusive(); err != nil {
		return nil, err
	}
	return s, nil
}

// describe fills in users, length and hash of a segment.
func describe(info *SegmentInfo, u Users) error {
	h := sha256.New()
	w := bufio.NewWriterSize(h, 64<<10)
	n, err := u.writeTo(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fmt.Errorf("segment %s: %w", info.Name, err)
	}
	info.Users, info.Bytes, info.SHA256 = u.Count(), n, hex.EncodeToString(h.Sum(nil))
	return nil
}

// As is the same set with another version, and built now. With it an older file
// is put back in use.
func (s *Set) As(version uint64, built time.Time) (*Set, error) {
	m := s.Manifest()
	m.Version, m.Built = version, built.UTC().Truncate(time.Second)
	users := make([][]Users, len(s.groups))
	for i := range s.groups {
		for _, seg := range s.groups[i].segments {
			users[i] = append(users[i], seg.Users)
		}
	}
	return assemble(&m, users)
}

// WriteTo writes the set as a file.
func (s *Set) WriteTo(w io.Writer) (int64, error) {
	counted := &counter{w: w}
	buf := bufio.NewWriterSize(counted, 256<<10)
	if _, err := buf.Write(s.head); err != nil {
		return counted.n, fmt.Errorf("writing segments: %w", err)
	}
	for i := range s.groups {
		for _, seg := range s.groups[i].segments {
			if _, err := seg.writeTo(buf); err != nil {
				return counted.n, fmt.Errorf("writing segment %s: %w", seg.Name, err)
			}
		}
	}
	if err := buf.Flush(); err != nil {
		return counted.n, fmt.Errorf("writing segments: %w", err)
	}
	return counted.n, nil
}

// counter counts the bytes that are written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// VersionAt is the version of a set that is built at t: 20261123115157, in UTC.
func VersionAt(t time.Time) uint64 {
	t = t.UTC()
	day := t.Year()*10000 + int(t.Month())*100 + t.Day()
	return uint64(day)*1e6 + uint64(t.Hour()*10000+t.Minute()*100+t.Second())
}
