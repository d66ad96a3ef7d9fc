// Package inboxtest is what every store of inboxes has to pass.
package inboxtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
)

// Store is what inbox.Store and inbox.Memory do.
type Store interface {
	Check(ctx context.Context) error
	Put(ctx context.Context, entries []inbox.Addressed) []error
	PutTopic(ctx context.Context, t inbox.Topic, e *inbox.Entry) error
	Page(ctx context.Context, k inbox.Key, follows []inbox.Follow, behind inbox.Position, limit int) ([]inbox.Entry, bool, error)
	Mark(ctx context.Context, k inbox.Key, m *inbox.Marks) error
	Unread(ctx context.Context, k inbox.Key, follows []inbox.Follow) (n int, more bool, err error)
	Show(ctx context.Context, k inbox.Key, shown []inbox.Position, at time.Time) error
	Count(ctx context.Context, k inbox.Key) (rows int, err error)
	Forget(ctx context.Context, k inbox.Key) error
	News(ctx context.Context) ([]inbox.Line, error)
}

var names atomic.Int64

// key is an inbox that no other test has, also of another run on the same server.
func key() inbox.Key {
	return inbox.Key{User: fmt.Sprintf("u%x-%x", time.Now().UnixNano(), names.Add(1)), App: "shop"}
}

// Run tests a store, whose clock is the real one.
func Run(t *testing.T, s Store) {
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, Store)
	}{
		{"Repeats", repeats}, {"Pages", pages}, {"Bytes", bytes}, {"Marks", marks}, {"UpTo", upTo}, {"Late", late}, {"MarksOfNothing", marksOfNothing},
		{"Forget", forget}, {"News", news}, {"Apart", apart}, {"Bounds", bounds},
		{"Topics", topics}, {"TopicMarks", topicMarks}, {"TopicBytes", topicBytes}, {"ManyTopics", manyTopics}, {"Unread", unread},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// entry is one of so long ago.
func entry(k inbox.Key, ago time.Duration) inbox.Addressed {
	at := time.Now().Add(-ago).UTC().Truncate(time.Millisecond)
	return inbox.Addressed{Key: k, Entry: inbox.Entry{
		Position: inbox.Position{At: at, ID: "n-" + uuid.NewString()},
		Type:     "news", Lane: "bulk", Sender: "orders", Priority: push.Low, Content: []byte(`{"title":"ü"}`), Expires: at.Add(time.Hour),
	}}
}

func put(t *testing.T, s Store, entries ...inbox.Addressed) {
	t.Helper()
	for _, err := range s.Put(t.Context(), entries) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// all reads an inbox by pages of so many.
func all(t *testing.T, s Store, k inbox.Key, limit int, follows ...inbox.Follow) (list []inbox.Entry) {
	t.Helper()
	behind := inbox.Top(time.Now())
	for {
		page, end, err := s.Page(t.Context(), k, follows, behind, limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > limit {
			t.Fatalf("a page of %d has %d", limit, len(page))
		}
		if list = append(list, page...); end {
			return list
		}
		if len(page) == 0 {
			t.Fatal("an empty page is not the end")
		}
		behind = page[len(page)-1].Position
	}
}

func mark(t *testing.T, s Store, k inbox.Key, m inbox.Marks) {
	t.Helper()
	if err := s.Mark(t.Context(), k, &m); err != nil {
		t.Fatal(err)
	}
}

// Written again, an entry is there once, with its marks; one without an expiry has none.
func repeats(t *testing.T, s Store) {
	k := key()
	e := entry(k, time.Minute)
	put(t, s, e, e)
	mark(t, s, k, inbox.Marks{At: time.Now(), Read: []inbox.Position{e.Position}})
	shown := time.Now().UTC().Truncate(time.Millisecond)
	if err := s.Show(t.Context(), k, []inbox.Position{e.Position}, shown); err != nil {
		t.Fatal(err)
	}
	put(t, s, e)
	e.Read, e.Shown = true, shown
	list := all(t, s, k, 10)
	if len(list) != 1 || fmt.Sprintf("%+v", list[0]) != fmt.Sprintf("%+v", e.Entry) {
		t.Errorf("%+v\nwant\n%+v", list, e.Entry)
	}
	never := entry(k, 0)
	never.Expires = time.Time{}
	put(t, s, never)
	if list := all(t, s, k, 10); len(list) != 2 || !list[0].Expires.IsZero() || list[0].Read || !list[0].Shown.IsZero() {
		t.Errorf("%+v", list)
	}
}

// Whatever the pages are, all come once, from the newest to the oldest, over all the time
// that entries are kept; and what comes in meanwhile moves nothing.
func pages(t *testing.T, s Store) {
	k := key()
	var want []string
	var entries []inbox.Addressed
	same := time.Now().Add(-50 * time.Hour).UTC().Truncate(time.Millisecond)
	for i := range 90 {
		e := entry(k, time.Duration(rand.Int64N(int64(29*24*time.Hour))))
		if i%3 == 0 {
			e.At = same // of one time
		}
		entries = append(entries, e)
	}
	put(t, s, entries...)
	slices.SortFunc(entries, func(a, b inbox.Addressed) int {
		if a.Before(b.Position) {
			return -1
		}
		return 1
	})
	for _, e := range entries {
		want = append(want, e.ID)
	}
	for _, limit := range []int{1, 7, 20, 90, 100} {
		var got []string
		for _, e := range all(t, s, k, limit) {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %d: %d entries in another order, want %d", limit, len(got), len(want))
		}
	}
	first, _, err := s.Page(t.Context(), k, nil, inbox.Top(time.Now()), 10)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, entry(k, 0), entry(k, time.Second))
	second, _, err := s.Page(t.Context(), k, nil, first[9].Position, 10)
	if err != nil || len(second) != 10 || second[0].ID != want[10] || second[9].ID != want[19] {
		t.Errorf("behind the first ten comes another than before: %v", err)
	}
}

// A page has as many bytes as it may have, and one entry at least.
func bytes(t *testing.T, s Store) {
	k := key()
	for i := range 20 {
		e := entry(k, time.Duration(i)*time.Minute)
		e.Content = []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
		put(t, s, e)
	}
	page, end, err := s.Page(t.Context(), k, nil, inbox.Top(time.Now()), 100)
	if err != nil || end || len(page) != 10 {
		t.Errorf("%d entries of 100 KiB, end %v, %v", len(page), end, err)
	}
	if list := all(t, s, k, 100); len(list) != 20 {
		t.Errorf("%d of 20", len(list))
	}
}

// Of two marks the later request stands, whichever is written first.
func marks(t *testing.T, s Store) {
	k := key()
	a, b := entry(k, time.Minute), entry(k, time.Hour)
	put(t, s, a, b)
	now := time.Now()
	read := func(want ...bool) {
		t.Helper()
		list := all(t, s, k, 10)
		for i := range want {
			if list[i].Read != want[i] {
				t.Errorf("entry %d is read: %v", i, list[i].Read)
			}
		}
	}
	read(false, false)
	mark(t, s, k, inbox.Marks{At: now, Read: []inbox.Position{a.Position, b.Position}})
	read(true, true)
	mark(t, s, k, inbox.Marks{At: now.Add(2 * time.Second), Unread: []inbox.Position{a.Position}})
	read(false, true)
	mark(t, s, k, inbox.Marks{At: now.Add(time.Second), Read: []inbox.Position{a.Position}}) // late
	read(false, true)
	mark(t, s, k, inbox.Marks{At: now.Add(-time.Second), Unread: []inbox.Position{b.Position}}) // late
	read(false, true)
	mark(t, s, k, inbox.Marks{At: now.Add(3 * time.Second), Read: []inbox.Position{a.Position}})
	read(true, true)
}

// All up to an entry are read, but what came later, and what was marked later; and it never
// goes back.
func upTo(t *testing.T, s Store) {
	k := key()
	newest, middle, oldest := entry(k, time.Minute), entry(k, time.Hour), entry(k, 20*24*time.Hour)
	put(t, s, newest, middle, oldest)
	now := time.Now()
	read := func(want ...bool) {
		t.Helper()
		for i, e := range all(t, s, k, 10) {
			if e.Read != want[i] {
				t.Errorf("entry %d is read: %v", i, e.Read)
			}
		}
	}
	mark(t, s, k, inbox.Marks{At: now, UpTo: middle.Position})
	read(false, true, true)
	mark(t, s, k, inbox.Marks{At: now.Add(time.Second), UpTo: oldest.Position})
	read(false, true, true)
	mark(t, s, k, inbox.Marks{At: now.Add(2 * time.Second), Unread: []inbox.Position{middle.Position}})
	read(false, false, true)
	mark(t, s, k, inbox.Marks{At: now.Add(3 * time.Second), UpTo: middle.Position})
	read(false, true, true)
	mark(t, s, k, inbox.Marks{At: now.Add(4 * time.Second), UpTo: newest.Position})
	read(true, true, true)
}

// What comes after its user has read all up to a time is not read, however old it is, until
// he says so again; and so is a message of a topic that was kept late.
func late(t *testing.T, s Store) {
	k := key()
	to := topic(k)
	follow := inbox.Follow{Topic: to.Name}
	newest := entry(k, 2*time.Minute)
	put(t, s, newest)
	before := time.Now().Add(-time.Minute)
	mark(t, s, k, inbox.Marks{At: before, UpTo: newest.Position})
	old := entry(k, 50*time.Minute)
	put(t, s, old)
	putTopic(t, s, to, message(30*time.Minute))
	read := func(want ...bool) {
		t.Helper()
		var got []bool
		left := 0
		for _, e := range all(t, s, k, 2, follow) {
			if got = append(got, e.Read); !e.Read {
				left++
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("read: %v, want %v", got, want)
		}
		if n, _, err := s.Unread(t.Context(), k, []inbox.Follow{follow}); n != left || err != nil {
			t.Errorf("%d are not read, %v, want %d", n, err, left)
		}
	}
	read(false, false, false) // the newest, too, came later than he says that he has read it
	mark(t, s, k, inbox.Marks{At: time.Now(), UpTo: newest.Position})
	read(true, true, true)
	mark(t, s, k, inbox.Marks{At: time.Now().Add(time.Second), Unread: []inbox.Position{old.Position}})
	read(true, true, false)
}

// Marks of what is not there make no entry, and do not end a page early.
func marksOfNothing(t *testing.T, s Store) {
	k := key()
	e := entry(k, 3*time.Hour)
	put(t, s, e)
	var gone []inbox.Position
	for i := range 50 {
		gone = append(gone, entry(k, time.Duration(i)*time.Minute).Position)
	}
	mark(t, s, k, inbox.Marks{At: time.Now(), Read: gone})
	if list := all(t, s, k, 3); len(list) != 1 || list[0].ID != e.ID {
		t.Errorf("%+v", list)
	}
}

// Who is erased has nothing; others, and his inbox of another app, stay.
func forget(t *testing.T, s Store) {
	k, other := key(), key()
	bank := inbox.Key{User: k.User, App: "bank"}
	counted := func(k inbox.Key, want int) {
		t.Helper()
		if n, err := s.Count(t.Context(), k); n != want || err != nil {
			t.Errorf("%+v: %d rows, %v, want %d", k, n, err, want)
		}
	}
	put(t, s, entry(k, 0), entry(k, 25*24*time.Hour), entry(other, 0), entry(bank, 0))
	counted(k, 2)
	// An id may be of half a minute ahead, and a mark of what is not there makes a row.
	mark(t, s, k, inbox.Marks{At: time.Now(), UpTo: entry(k, -30*time.Second).Position, Read: []inbox.Position{entry(k, time.Hour).Position}})
	mark(t, s, other, inbox.Marks{At: time.Now(), UpTo: entry(other, 0).Position})
	counted(k, 4)
	for range 2 {
		if err := s.Forget(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		if list := all(t, s, k, 10); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		counted(k, 0)
	}
	counted(other, 2)
	counted(bank, 1)
	if len(all(t, s, other, 10)) != 1 || len(all(t, s, bank, 10)) != 1 {
		t.Error("others are gone, too")
	}
}

// News name who has got something, and whose marks have changed.
func news(t *testing.T, s Store) {
	told := func(keys ...inbox.Key) bool {
		t.Helper()
		lines, err := s.News(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if !slices.ContainsFunc(lines, func(l inbox.Line) bool { return l.Key == k.Hash() && time.Since(l.At) < time.Hour }) {
				return false
			}
		}
		return true
	}
	var keys []inbox.Key
	var entries []inbox.Addressed
	for range 130 { // more than one statement takes
		keys = append(keys, key())
		entries = append(entries, entry(keys[len(keys)-1], time.Hour))
	}
	put(t, s, entries...)
	if !told(keys...) {
		t.Error("not all are told of")
	}
	k := key()
	if told(k) {
		t.Error("told of one who has got nothing")
	}
	mark(t, s, k, inbox.Marks{At: time.Now(), UpTo: entry(k, 0).Position})
	if !told(k) {
		t.Error("marks are not told")
	}
}

// Names that only together are the same are different inboxes.
func apart(t *testing.T, s Store) {
	k := key()
	a, b := inbox.Key{User: k.User + "b", App: "a"}, inbox.Key{User: k.User, App: "ba"}
	put(t, s, entry(a, 0))
	if len(all(t, s, b, 10)) != 0 || a.Hash() == b.Hash() {
		t.Error("they are one")
	}
}

// What no caller may ask is refused.
func bounds(t *testing.T, s Store) {
	k := key()
	for _, limit := range []int{0, -1, inbox.MaxPage + 1} {
		if _, _, err := s.Page(t.Context(), k, nil, inbox.Top(time.Now()), limit); err == nil {
			t.Errorf("a page of %d", limit)
		}
	}
	if err := s.Mark(t.Context(), k, &inbox.Marks{At: time.Now(), Read: make([]inbox.Position, inbox.MaxMarks), Unread: make([]inbox.Position, 1)}); err == nil {
		t.Error("101 marks")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(gone, []inbox.Addressed{entry(k, 0)}); err[0] == nil {
		t.Error("written when nobody waits any more")
	}
	if _, _, err := s.Page(gone, k, nil, inbox.Top(time.Now()), 1); err == nil {
		t.Error("read when nobody waits any more")
	}
}
