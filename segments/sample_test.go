package segments

import (
	"bytes"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// span is the numbers from one to the other, both in it, by steps.
func span(from, to, step uint32) Users {
	var all []uint32
	for n := uint64(from); n <= uint64(to); n += uint64(step) {
		all = append(all, uint32(n))
	}
	return UsersOf(all...)
}

// lifecycle is a set with all kinds of containers: arrays, a bitmap and runs.
func lifecycle(t testing.TB, version uint64) *Set {
	t.Helper()
	var b Builder
	add := func(group, segment string, sets ...Users) {
		if err := b.AddUsers(group, segment, Union(sets...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{b.AddGroup("lifecycle", true, ByRecord), b.AddGroup("interests", false, ByHash)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	add("lifecycle", "new", UsersOf(0, 7, MaxNumber), span(100_000, 160_000, 7))
	add("lifecycle", "active", UsersOf(1, 8), span(200_000, 400_000, 1))
	add("lifecycle", "asleep")
	add("interests", "shoes", UsersOf(1, 2, 3))
	add("interests", "hats", UsersOf(3, 4), span(100_000, 300_000, 3))
	s, err := b.Build(version, noon)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fileOf is a set as the bytes of a file.
func fileOf(t testing.TB, s *Set) []byte {
	t.Helper()
	var b bytes.Buffer
	if n, err := s.WriteTo(&b); err != nil || n != int64(b.Len()) {
		t.Fatalf("WriteTo gave %d, %v; %d bytes were written", n, err, b.Len())
	}
	return b.Bytes()
}

// sealed is a file around a manifest and sections, whose own checksum is right.
func sealed(t testing.TB, manifest string, sections ...[]byte) []byte {
	t.Helper()
	return append(seal(formatVersion, []byte(manifest)), bytes.Join(sections, nil)...)
}
