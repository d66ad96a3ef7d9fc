package inboxtest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/inbox"
)

// topic is one that no other test has.
func topic(k inbox.Key) inbox.Topic {
	return inbox.Topic{Name: fmt.Sprintf("t%x-%x", time.Now().UnixNano(), names.Add(1)), App: k.App}
}

// message is one to a topic, of so long ago.
func message(ago time.Duration) inbox.Entry {
	e := entry(inbox.Key{}, ago).Entry
	e.ID = uuid.NewString()
	return e
}

func putTopic(t *testing.T, s Store, to inbox.Topic, messages ...inbox.Entry) {
	t.Helper()
	for i := range messages {
		if err := s.PutTopic(t.Context(), to, &messages[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// ids are those of entries.
func ids(list []inbox.Entry) (all []string) {
	for _, e := range list {
		all = append(all, e.ID)
	}
	return all
}

// What is of topics comes between what is the user's own, in the order of time and, of one
// time, of ids, once, whatever the pages are; from when on a topic is followed, and of no
// topic that is not. A message that comes again stays as it was.
func topics(t *testing.T, s Store) {
	k := key()
	follows := []inbox.Follow{{Topic: topic(k).Name}, {Topic: topic(k).Name, Since: time.Now().Add(-12 * 24 * time.Hour).UTC().Truncate(time.Millisecond)}, {Topic: topic(k).Name}}
	same := time.Now().Add(-50 * time.Hour).UTC().Truncate(time.Millisecond)
	var want []inbox.Entry
	for i := range 60 {
		e := entry(k, time.Duration(rand.Int64N(int64(29*24*time.Hour))))
		if i%3 == 0 {
			e.At = same
		}
		put(t, s, e)
		want = append(want, e.Entry)
	}
	for i := range 90 {
		f := follows[i%2]
		m := message(time.Duration(rand.Int64N(int64(29 * 24 * time.Hour))))
		switch {
		case i%5 == 0:
			m.At = same // of one time with others, in one topic and in the inbox
		case i == 1:
			m.At = f.Since // the moment itself counts
		case i == 3:
			m.At = f.Since.Add(-time.Millisecond)
		}
		putTopic(t, s, inbox.Topic{Name: f.Topic, App: k.App}, m)
		again := m
		again.Content = []byte(`{"title":"another"}`)
		putTopic(t, s, inbox.Topic{Name: f.Topic, App: k.App}, again)
		if m.Topic = f.Topic; !m.At.Before(f.Since) {
			want = append(want, m)
		}
	}
	putTopic(t, s, topic(k), message(time.Hour)) // nobody follows it
	putTopic(t, s, inbox.Topic{Name: follows[0].Topic, App: "bank"}, message(time.Hour))
	slices.SortFunc(want, func(a, b inbox.Entry) int {
		if a.Before(b.Position) {
			return -1
		}
		return 1
	})
	for _, limit := range []int{1, 7, 50, 100} {
		got := all(t, s, k, limit, follows...)
		if !slices.Equal(ids(got), ids(want)) {
			t.Fatalf("by %d: %d entries in another order, want %d", limit, len(got), len(want))
		}
		for i := range got {
			if fmt.Sprintf("%+v", got[i]) != fmt.Sprintf("%+v", want[i]) {
				t.Fatalf("by %d: %+v\nwant\n%+v", limit, got[i], want[i])
			}
		}
	}
	if got := all(t, s, k, 100); len(got) != 60 {
		t.Errorf("%d of his own 60", len(got))
	}
	putTopic(t, s, inbox.Topic{Name: follows[2].Topic, App: k.App}, message(0)) // news are of the last seconds
	lines, err := s.News(t.Context())
	if err != nil || !slices.ContainsFunc(lines, func(l inbox.Line) bool { return l.Key == inbox.Topic{Name: follows[2].Topic, App: k.App}.Hash() }) {
		t.Errorf("news do not tell of the topic: %v", err)
	}
}

// Each has marks of his own of what all follow; so has what was shown. Who is forgotten
// leaves none, and the message stays.
func topicMarks(t *testing.T, s Store) {
	k, other := key(), key()
	to := topic(k)
	follow := inbox.Follow{Topic: to.Name}
	newest, oldest := message(time.Minute), message(20*24*time.Hour)
	putTopic(t, s, to, newest, oldest)
	middle := entry(k, time.Hour)
	put(t, s, middle)
	state := func(k inbox.Key) (text string) {
		for _, e := range all(t, s, k, 2, follow) {
			text += fmt.Sprint(e.Read, !e.Shown.IsZero(), " ")
		}
		return text
	}
	check := func(want, others string) {
		t.Helper()
		if got, of := state(k), state(other); got != want || of != others {
			t.Errorf("%s, another %s, want %s and %s", got, of, want, others)
		}
	}
	check("false false false false false false ", "false false false false ")
	now := time.Now()
	if err := s.Show(t.Context(), k, []inbox.Position{newest.Position}, now); err != nil {
		t.Fatal(err)
	}
	mark(t, s, k, inbox.Marks{At: now, Read: []inbox.Position{newest.Position}})
	check("true true false false false false ", "false false false false ")
	mark(t, s, k, inbox.Marks{At: now.Add(time.Second), Unread: []inbox.Position{newest.Position}})
	mark(t, s, other, inbox.Marks{At: now.Add(time.Second), UpTo: newest.Position})
	check("false true false false false false ", "true false true false ")
	mark(t, s, k, inbox.Marks{At: now.Add(2 * time.Second), UpTo: middle.Position})
	check("false true true false true false ", "true false true false ")
	if n, err := s.Count(t.Context(), k); n != 3 || err != nil { // an entry, marks, how far it is read
		t.Errorf("%d rows, %v", n, err)
	}
	if err := s.Forget(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	check("false false false false ", "true false true false ")
	// Marks of what is followed no more are no entries.
	mark(t, s, k, inbox.Marks{At: now.Add(time.Minute), Read: []inbox.Position{newest.Position, oldest.Position}})
	if got := all(t, s, k, 1); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// What is of topics counts among the bytes of a page.
func topicBytes(t *testing.T, s Store) {
	k := key()
	follows := []inbox.Follow{{Topic: topic(k).Name}, {Topic: topic(k).Name}}
	for i := range 20 {
		m := message(time.Duration(i) * time.Minute)
		m.Content = []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
		if i%4 == 3 {
			put(t, s, inbox.Addressed{Key: k, Entry: m})
			continue
		}
		putTopic(t, s, inbox.Topic{Name: follows[i%2].Topic, App: k.App}, m)
	}
	page, end, err := s.Page(t.Context(), k, follows, inbox.Top(time.Now()), 100)
	if err != nil || end || len(page) != 10 {
		t.Errorf("%d entries of 100 KiB, end %v, %v", len(page), end, err)
	}
	if list := all(t, s, k, 100, follows...); len(list) != 20 {
		t.Errorf("%d of 20", len(list))
	}
}

// As many topics as may be, of which one has more than a page, come in order; one more is
// refused.
func manyTopics(t *testing.T, s Store) {
	k := key()
	var follows []inbox.Follow
	for range inbox.MaxFollows {
		follows = append(follows, inbox.Follow{Topic: topic(k).Name})
	}
	n := 0
	write := func(f inbox.Follow, ago time.Duration) {
		putTopic(t, s, inbox.Topic{Name: f.Topic, App: k.App}, message(ago))
		n++
	}
	for i, f := range follows {
		write(f, time.Duration(i)*6*time.Hour)
	}
	for i := range 25 {
		write(follows[7], time.Duration(i)*time.Minute)
	}
	for _, limit := range []int{10, 100} {
		got := all(t, s, k, limit, follows...)
		if len(got) != n || !slices.IsSortedFunc(got, func(a, b inbox.Entry) int {
			if a.Before(b.Position) {
				return -1
			}
			return 1
		}) {
			t.Errorf("by %d: %d of %d, or in another order", limit, len(got), n)
		}
	}
	if _, _, err := s.Page(t.Context(), k, append(follows, follows[0]), inbox.Top(time.Now()), 1); err == nil {
		t.Error("a page of 101 topics")
	}
}
