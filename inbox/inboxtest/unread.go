package inboxtest

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
)

// What is not read is counted over both, up to a bound, without what has expired and marks
// of nothing; and not beyond as many entries as are looked at.
func unread(t *testing.T, s Store) {
	k := key()
	to := topic(k)
	follow := []inbox.Follow{{Topic: to.Name, Since: time.Now().Add(-10 * 24 * time.Hour)}}
	counts := func(want int, wantMore bool) {
		t.Helper()
		if n, more, err := s.Unread(t.Context(), k, follow); n != want || more != wantMore || err != nil {
			t.Errorf("%d, more %v, %v, want %d, %v", n, more, err, want, wantMore)
		}
	}
	counts(0, false)
	own, expired, message, old, gone := entry(k, 30*time.Minute), entry(k, 2*time.Hour), message(40*time.Minute), message(20*24*time.Hour), message(time.Minute)
	put(t, s, own, expired)
	ended := gone
	ended.Expires = time.Now().Add(-time.Second)
	putTopic(t, s, to, message, old, ended) // old is of before he joined
	counts(2, false)
	now := time.Now()
	mark(t, s, k, inbox.Marks{At: now, Read: []inbox.Position{message.Position, entry(k, time.Hour).Position}})
	counts(1, false)
	mark(t, s, k, inbox.Marks{At: now.Add(time.Second), UpTo: own.Position})
	counts(0, false)
	mark(t, s, k, inbox.Marks{At: now.Add(2 * time.Second), Unread: []inbox.Position{message.Position}})
	counts(1, false)
	for i := range inbox.MostUnread - 2 {
		if i%2 == 0 {
			put(t, s, entry(k, time.Duration(i)*time.Second))
			continue
		}
		m := entry(k, time.Duration(i)*time.Second).Entry
		putTopic(t, s, to, m)
	}
	counts(inbox.MostUnread-1, false)
	put(t, s, entry(k, time.Second), entry(k, 2*time.Second))
	counts(inbox.MostUnread, true)
	var many []inbox.Addressed
	for i := range 1_000 {
		many = append(many, entry(k, 50*time.Hour+time.Duration(i)*time.Second))
	}
	put(t, s, many...)
	mark(t, s, k, inbox.Marks{At: time.Now().Add(3 * time.Second), UpTo: entry(k, 0).Position})
	counts(0, true) // there may be others behind those that were looked at
}
