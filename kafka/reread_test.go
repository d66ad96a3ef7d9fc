package kafka

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRereadHandsOutWhatWasCommittedLast(t *testing.T) {
	for _, test := range []struct {
		reason  string
		deleted int64 // the log begins here
		reread  int
		from    int64 // where reading begins
	}{
		{"a part of what is committed", 0, 3, 4},
		{"more than there ever was", 0, 100, 0},
		{"more than the log still has", 6, 3, 6},
		{"nothing", 0, 0, 7},
	} {
		t.Run(test.reason, func(t *testing.T) {
			c := newCluster(t, 1, []string{"push"})
			commits := c.watchCommits()
			first := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Drain: mortal})
			c.produce("push", 0, 0, 10)
			b := nextItems(t, first, 10)[0]
			b.Tracker.Done(itemsOf(b)[:7])
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := first.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if test.deleted > 0 {
				if err := c.DeleteRecords("push", 0, test.deleted); err != nil {
					t.Fatal(err)
				}
			}

			m := NewMetrics(nil)
			second := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Reread: test.reread, Confirms: 2, Metrics: m})
			again := nextItems(t, second, int(10-test.from))
			items := itemsOf(again[0])
			if items[0].Offset != test.from {
				t.Fatalf("reading begins at %d, want %d", items[0].Offset, test.from)
			}
			for _, it := range items {
				if it.Reread != (it.Offset < 7) {
					t.Errorf("offset %d: reread %v", it.Offset, it.Reread)
				}
				if (it.Reread || it.Offset < 9) && !it.Confirm {
					t.Errorf("offset %d is not confirmed: a dead owner may have had it open", it.Offset)
				}
			}
			again[0].Tracker.Done(items[:1]) // the first of what is read again
			if err := second.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, want := c.committed("g", "push", 0), max(7, test.from+1); got != want {
				t.Errorf("after the first record %d is committed, want %d", got, want)
			}
			again[0].Tracker.Done(items[1:])
			if err := second.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.committed("g", "push", 0); got != 10 {
				t.Errorf("at the end %d is committed, want 10", got)
			}
			if n := testutil.ToFloat64(m.rewinds.WithLabelValues("push")); n != 0 {
				t.Errorf("%v rewinds were counted", n)
			}
			commits.mu.Lock()
			defer commits.mu.Unlock()
			if len(commits.rewinds) > 0 {
				t.Errorf("offsets went back: %v", commits.rewinds)
			}
		})
	}
}
