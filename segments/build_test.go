package segments

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// build builds the group "g" from one list.
func build(t *testing.T, numbers Numbering, l List) (Users, uint64, error) {
	t.Helper()
	var b Builder
	if err := b.AddGroup("g", false, numbers); err != nil {
		t.Fatal(err)
	}
	read, err := b.AddList(t.Context(), "g", "s", l)
	if err != nil {
		return Users{}, read, err
	}
	s, err := b.Build(1, noon)
	if err != nil {
		t.Fatal(err)
	}
	seg, _ := s.Group("g").Segment("s")
	return seg.Users, read, nil
}

func TestLists(t *testing.T) {
	long := strings.Repeat("#", maxListLine+1)
	for _, tt := range []struct {
		why    string
		text   string
		csv    bool
		column string
		want   []uint32
		fault  string // empty = it is taken
	}{
		{"one a line", "3\n1\n2\n", false, "", []uint32{1, 2, 3}, ""},
		{"an end without a line break, breaks of Windows, blanks", "3\r\n\r\n 1 \t\n2", false, "", []uint32{1, 2, 3}, ""},
		{"a byte order mark, comments", "\ufeff4294967295\n# 5\n0\n", false, "", []uint32{0, MaxNumber}, ""},
		{"one user more than once", "1\n1\n1\n", false, "", []uint32{1}, ""},
		{"nothing", "", false, "", nil, ""},
		{"a name", "1\n2\nann\n", false, "", nil, "line 3: not a decimal number"},
		{"a header", "user_number\n1\n", false, "", nil, "line 1: not a decimal number"},
		{"64 bits", "1\n4294967296\n", false, "", nil, "line 2: a number over 4294967295: user numbers have 32 bits"},
		{"a line without end", "1\n" + long, false, "", nil, "line 2: longer than"},
		{"the only column", "n\n1\n2\n", true, "", []uint32{1, 2}, ""},
		{"a column by its name", "name,n\n\"a, b\",\"1\"\nc,2\n", true, "n", []uint32{1, 2}, ""},
		{"a byte order mark before the name", "\ufeffn,name\n1,a\n", true, "n", []uint32{1}, ""},
		{"two columns, none named", "n,name\n1,a\n", true, "", nil, "line 1: 2 columns"},
		{"no such column", "n,name\n1,a\n", true, "number", nil, `line 1: no column "number"`},
		{"no header", "1\n2\n", true, "", nil, "line 1: missing header"},
		{"an empty CSV file", "", true, "n", nil, "line 1: missing header"},
		{"a header alone", "n\n", true, "n", nil, ""},
		{"a field too many", "n\n1\n1,2\n", true, "", nil, "line 3: wrong number of fields"},
		{"a bad number behind a field of two lines", "a,n\n\"x\ny\",1\nz,q\n", true, "n", nil, "line 4: not a decimal number"},
	} {
		l := List{R: iotest.HalfReader(strings.NewReader(tt.text)), CSV: tt.csv, Column: tt.column}
		u, _, err := build(t, ByRecord, l)
		if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.fault)
		} else if got := slices.Collect(u.All()); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %d, want %d", tt.why, got, tt.want)
		}
	}
}

// What a line contains may be anything, a token for example.
func TestErrorsOfListsDoNotRepeatThem(t *testing.T) {
	for _, csv := range []bool{false, true} {
		for _, text := range []string{"n\n1\nSECRET\n", "n\n1\n\"SECRET\"x\n", "SECRET,b\n1,2\n"} {
			if _, _, err := build(t, ByRecord, List{R: strings.NewReader(text), CSV: csv}); err == nil || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
}

func TestListsOfManyChunks(t *testing.T) {
	var text bytes.Buffer
	const n = 2*chunk + 5
	for i := range n {
		fmt.Fprintln(&text, i*7)
	}
	var told []uint64
	u, read, err := build(t, ByID, List{R: &text, Progress: func(read uint64) { told = append(told, read) }})
	if err != nil || read != n || u.Count() != n || !u.Contains(7*(n-1)) {
		t.Errorf("%d users of %d lines: %v", u.Count(), read, err)
	}
	if !slices.Equal(told, []uint64{chunk, 2 * chunk, n}) {
		t.Errorf("progress: %d", told)
	}
}

func TestAListThatFails(t *testing.T) {
	_, _, err := build(t, ByRecord, List{R: io.MultiReader(strings.NewReader("1\n"), iotest.ErrReader(io.ErrClosedPipe))})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
	_, _, err = build(t, ByRecord, List{CSV: true, R: io.MultiReader(strings.NewReader("n\n1\n"), iotest.ErrReader(io.ErrClosedPipe))})
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("CSV: %v", err)
	}
}

func TestAListIsInterrupted(t *testing.T) {
	var b Builder
	if err := b.AddGroup("g", true, ByRecord); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	text := strings.Repeat("1\n", 3*chunk)
	read, err := b.AddList(ctx, "g", "s", List{R: strings.NewReader(text), Progress: func(uint64) { cancel() }})
	if !errors.Is(err, context.Canceled) || read != chunk {
		t.Errorf("%d lines were read: %v", read, err)
	}
}

func TestHashedLists(t *testing.T) {
	u, read, err := build(t, ByHash, List{R: strings.NewReader("u42\n007\n# no user\nann@example.com\n")})
	if err != nil || read != 3 || u.Count() != 3 {
		t.Fatalf("%d users of %d lines: %v", u.Count(), read, err)
	}
	for _, id := range []string{"u42", "007", "ann@example.com"} {
		if n, ok := ByHash.Of(id, 0, false); !ok || !u.Contains(n) {
			t.Errorf("%s is missing", id)
		}
	}
}

func TestBuildRefuses(t *testing.T) {
	for _, tt := range []struct {
		why  string
		do   func(b *Builder) error
		text string
	}{
		{"hashes in an exclusive group", func(b *Builder) error { return b.AddGroup("h", true, ByHash) }, "of 270 million ids, 16 million"},
		{"an unknown numbering", func(b *Builder) error { return b.AddGroup("h", true, "rank") }, "unknown numbering"},
		{"a group twice", func(b *Builder) error { return b.AddGroup("g", true, ByID) }, "added already"},
		{"a bad name of a group", func(b *Builder) error { return b.AddGroup("a b", true, ByID) }, "a name has"},
		{"a bad name of a segment", func(b *Builder) error { return b.AddUsers("g", "-x", Users{}) }, "a name has"},
		{"a group that was not added", func(b *Builder) error { return b.AddUsers("x", "s", Users{}) }, `no group "x"`},
		{"a list of a group that was not added", func(b *Builder) error {
			_, err := b.AddList(t.Context(), "x", "s", List{R: strings.NewReader("1\n")})
			return err
		}, `no group "x"`},
		{"a time that RFC 3339 does not have", func(b *Builder) error {
			if err := b.AddUsers("g", "a", UsersOf(1)); err != nil {
				return err
			}
			_, err := b.Build(1, noon.AddDate(9999, 0, 0))
			return err
		}, "encoding the manifest"},
		{"a group without segments", func(b *Builder) error { _, err := b.Build(1, noon); return err }, "group g has no segment"},
		{"version 0", func(b *Builder) error {
			if err := b.AddUsers("g", "a", UsersOf(1)); err != nil {
				return err
			}
			_, err := b.Build(0, noon)
			return err
		}, "version must be at least 1"},
		{"users in three segments", func(b *Builder) error {
			for _, name := range []string{"a", "b", "c"} {
				if err := b.AddUsers("g", name, UsersOf(uint32(name[0]), 70_000, 80_000)); err != nil {
					return err
				}
			}
			_, err := b.Build(1, noon)
			return err
		}, "group g is exclusive, and 2 users are in both a and b, user number 70000 is the first"},
		{"more segments than a file has", func(b *Builder) error {
			for i := range maxSegments + 1 {
				if err := b.AddUsers("g", fmt.Sprint("s", i), Users{}); err != nil {
					return err
				}
			}
			_, err := b.Build(1, noon)
			return err
		}, "more than 1024 segments"},
	} {
		var b Builder
		if err := b.AddGroup("g", true, ByRecord); err != nil {
			t.Fatal(err)
		}
		if err := tt.do(&b); err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.text)
		}
	}
}

func TestAsManySegmentsAsAFileHas(t *testing.T) {
	var b Builder
	for _, group := range []string{"g", "h"} {
		if err := b.AddGroup(group, true, ByRecord); err != nil {
			t.Fatal(err)
		}
		for i := range maxSegments / 2 {
			if err := b.AddUsers(group, fmt.Sprint("s", i), UsersOf(uint32(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := b.Build(1, noon)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := readBack(t, s).Of("h", 511); got != "s511" {
		t.Errorf("511 is in %q", got)
	}
}

// An overlap with the last segment is found as well as one with the first.
func TestExclusiveGroupsAreCheckedPairByPair(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	for i := range names {
		for j := range i {
			var b Builder
			if err := b.AddGroup("g", true, ByRecord); err != nil {
				t.Fatal(err)
			}
			for k, name := range names {
				u := span(uint32(k)*100_000, uint32(k)*100_000+80_000, 1)
				if k == i || k == j {
					u = Union(u, UsersOf(999_999))
				}
				if err := b.AddUsers("g", name, u); err != nil {
					t.Fatal(err)
				}
			}
			_, err := b.Build(1, noon)
			if want := fmt.Sprintf("both %s and %s, user number 999999", names[j], names[i]); err == nil || !strings.Contains(err.Error(), want) || reasonOf(err) != RefusedOverlap {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
}

func TestAsIsTheSameSetInAnotherVersion(t *testing.T) {
	s := readBack(t, lifecycle(t, 5))
	later, err := s.As(9, noon.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	later = readBack(t, later)
	m, old := later.Manifest(), s.Manifest()
	if m.Version != 9 || !m.Built.Equal(noon.Add(time.Hour)) || later.Checksum() == s.Checksum() || s.Version() != 5 {
		t.Errorf("%+v", m)
	}
	if !slices.Equal(m.Groups[0].Segments, old.Groups[0].Segments) {
		t.Errorf("other segments: %+v, %+v", m.Groups, old.Groups)
	}
}

func TestVersionAt(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	if v := VersionAt(at); v != 20260102020405 {
		t.Errorf("%d", v)
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users.seg")
	for version := range uint64(2) {
		s := lifecycle(t, version+1)
		if err := WriteFile(path, s); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(data, fileOf(t, s)) {
			t.Errorf("version %d: %d bytes, %v", version, len(data), err)
		}
	}
	if err := WriteFile(filepath.Join(path, "x"), lifecycle(t, 3)); err == nil {
		t.Error("it wrote below a file")
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(path), "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(filepath.Dir(path), "d"), lifecycle(t, 3)); err == nil {
		t.Error("it replaced a directory")
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %s", left)
	}
	other := filepath.Join(filepath.Dir(path), "other")
	if f, err := os.Create(other); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	want, _ := os.Stat(other)
	if info, err := os.Stat(path); err != nil || info.Mode() != want.Mode() {
		t.Errorf("mode %v, want %v, %v", info.Mode(), want.Mode(), err)
	}
}

type brokenWriter struct{ left int }

func (w *brokenWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		n := w.left
		w.left = 0
		return n, io.ErrShortWrite
	}
	w.left -= len(p)
	return len(p), nil
}

func TestWritingTellsErrors(t *testing.T) {
	built := lifecycle(t, 1)
	size := len(fileOf(t, built))
	for name, s := range map[string]*Set{"built": built, "read": readBack(t, built)} {
		for _, n := range []int{0, 100, size / 2, size - 1} {
			if _, err := s.WriteTo(&brokenWriter{n}); !errors.Is(err, io.ErrShortWrite) {
				t.Errorf("%s, after %d bytes: %v", name, n, err)
			}
		}
	}
	// Larger than what is buffered, so that it fails in a section.
	var b Builder
	for _, err := range []error{b.AddGroup("g", true, ByID), b.AddUsers("g", "a", span(0, 1<<23, 2))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Build(1, noon)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readBack(t, s).WriteTo(&brokenWriter{1000}); !errors.Is(err, io.ErrShortWrite) || !strings.Contains(err.Error(), "segment a") {
		t.Errorf("%v", err)
	}
}
