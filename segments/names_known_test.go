package segments

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

// clerk is a Source who counts what is asked for and read.
type clerk struct {
	file  []byte
	tag   string
	err   error
	opens int
	open  int // bodies that are not closed
	read  int // bytes
}

func (s *clerk) Open(_ context.Context, tag string) (*Contents, error) {
	s.opens++
	switch {
	case s.err != nil:
		return nil, s.err
	case tag != "" && tag == s.tag:
		return nil, ErrUnchanged
	}
	s.open++
	return &Contents{Body: &lent{s, bytes.NewReader(s.file)}, Size: int64(len(s.file)), Tag: s.tag}, nil
}

func (s *clerk) String() string { return "clerk" }

type lent struct {
	of *clerk
	io.Reader
}

func (b *lent) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	b.of.read += n
	return n, err
}

func (b *lent) Close() error {
	b.of.open--
	return nil
}

func TestNames(t *testing.T) {
	now := time.Unix(1e9, 0)
	s := &clerk{err: errors.New("away")}
	n := NewNames(s, time.Minute, func() time.Time { return now })
	poll := func(why string, fails bool, opens int) {
		t.Helper()
		if err := n.Poll(t.Context()); (err != nil) != fails || s.opens != opens || s.open != 0 {
			t.Errorf("%s: %v, asked %d times, %d bodies open", why, err, s.opens, s.open)
		}
	}
	has := func(name string, want, known bool) {
		t.Helper()
		if got, is := n.Has(name); got != want || is != known {
			t.Errorf("%s: %v, known %v", name, got, is)
		}
	}
	poll("away", true, 1)
	has("lifecycle/new", false, false)
	set := lifecycle(t, 5)
	s.file, s.tag, s.err = fileOf(t, set), "5", nil
	poll("there, and nothing was known", false, 2)
	s.err = errors.New("away")
	poll("within the interval it says the same", false, 2)
	s.err = nil
	for g := range set.Groups() {
		for segment := range g.Segments() {
			has(g.Name()+"/"+segment.Name, true, true)
			has(g.Name()+"/"+segment.Name+"/x", false, true)
			has(segment.Name, false, true)
		}
		has(g.Name(), false, true)
		has(g.Name()+"/", false, true)
		has(g.Name()+"/none", false, true)
	}
	has("", false, true)
	if m := set.Manifest(); s.read > len(s.file) || int64(s.read) > m.FileBytes() {
		t.Errorf("%d bytes were read of %d", s.read, len(s.file))
	}
	now = now.Add(time.Minute)
	poll("unchanged", false, 3)
	s.file, s.tag = []byte("no file of segments"), "6"
	now = now.Add(time.Minute)
	poll("broken", true, 4)
	has("lifecycle/new", true, true)

	for _, tt := range []struct {
		version uint64
		other   bool
	}{{4, false}, {6, true}} {
		var b Builder
		if err := errors.Join(b.AddGroup("other", false, ByID), b.AddUsers("other", "one", UsersOf(1))); err != nil {
			t.Fatal(err)
		}
		later, err := b.Build(tt.version, now)
		if err != nil {
			t.Fatal(err)
		}
		s.file, s.tag = fileOf(t, later), ""
		now = now.Add(time.Minute)
		poll("another file", false, s.opens+1)
		has("other/one", tt.other, true)
		has("lifecycle/new", !tt.other, true)
	}
}
