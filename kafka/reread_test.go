package kafka

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

func TestRereadHandsOutWhatWasCommittedLast(t *testing.T) {
	for _, test := range []struct {
		reason  string
		deleted int64 // where the log begins
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
				t.Fatalf("got start %d, want %d", items[0].Offset, test.from)
			}
			for _, it := range items {
				if it.Reread != (it.Offset < 7) {
					t.Errorf("offset %d: got reread %v", it.Offset, it.Reread)
				}
				if (it.Reread || it.Offset < 9) && !it.Confirm {
					t.Errorf("offset %d is not marked for a confirm read: a dead owner may have sent it", it.Offset)
				}
			}
			again[0].Tracker.Done(items[:1]) // the first of what is read again
			if err := second.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, want := c.committed("g", "push", 0), max(7, test.from+1); got != want {
				t.Errorf("after the first record: got commit %d, want %d", got, want)
			}
			again[0].Tracker.Done(items[1:])
			if err := second.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := c.committed("g", "push", 0); got != 10 {
				t.Errorf("at the end: got commit %d, want 10", got)
			}
			if n := testutil.ToFloat64(m.rewinds.WithLabelValues("push")); n != 0 {
				t.Errorf("got %v rewinds, want 0", n)
			}
			commits.mu.Lock()
			defer commits.mu.Unlock()
			if len(commits.rewinds) > 0 {
				t.Errorf("offsets went back: %v", commits.rewinds)
			}
		})
	}
}

// Offsets have gaps, at the markers of transactions. So reading begins again at the first
// intent without a result, not a number of offsets before.
func TestRereadCoversAllIntentsWhateverTheGaps(t *testing.T) {
	for _, topics := range [][]SourceTopic{mainTopic("push"), tier("push", time.Millisecond)} {
		c := newCluster(t, 1, []string{"push"})
		producer, err := c.options.newClient(kgo.TransactionalID("shop"))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		for i := range 20 { // each takes two offsets, one for its marker
			r := record("push", 0, i)
			r.Headers = []kgo.RecordHeader{header("pf-v", "1")}
			if err := producer.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		}
		options := SourceOptions{Topics: topics, BatchRecords: 10, Linger: time.Millisecond, Reread: 10, Confirms: 5, Drain: mortal}
		first := c.source(options)
		for _, b := range nextItems(t, first, 20) {
			items := itemsOf(b)
			b.Tracker.Intend(items)
			if err := first.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if items[0].Offset == 0 {
				b.Tracker.Done(items)
				continue
			}
			b.Tracker.Done(items[:2])
			b.Tracker.Done(items[5:7])
			b.Tracker.Abandon(items[2:5])
		}
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		const batch = 20 // the offset of the second one's first record
		second := c.source(options)
		var again []*pipeline.Item
		for _, b := range nextItems(t, second, 10) {
			again = append(again, itemsOf(b)...)
		}
		for i, it := range again {
			if it.Offset != int64(batch+2*i) || !it.Reread || !it.Confirm {
				t.Errorf("record %d is offset %d: reread %v, confirm %v; want %d, read again", i, it.Offset, it.Reread, it.Confirm, batch+2*i)
			}
		}
	}
}

// The metadata counts only for the commit it came with. Where a commit has none, as many
// offsets are read again as a batch has records.
func TestWhereReadingBegins(t *testing.T) {
	for _, tt := range []struct {
		reason string
		at     stand
		from   int64
		start  int64
	}{
		{"nothing is unresolved", stand{100, 100}, 0, 100},
		{"some is", stand{100, 40}, 0, 40},
		{"the log does not have it any more", stand{100, 40}, 60, 60},
		{"nobody says", stand{100, -1}, 0, 90},
		{"never after what is committed", stand{100, 140}, 0, 100},
	} {
		a := part(options(func(o *SourceOptions) { o.Reread = 10 }), 0)
		if start := a.begin(tt.at, tt.from); start != tt.start || a.committed != 100 || (a.reread == 100) != (start < 100) {
			t.Errorf("%s: got start %d, reread up to %d; want %d", tt.reason, start, a.reread, tt.start)
		}
	}
	for metadata, want := range map[string]int64{"": -1, "unresolved=17": 17, "unresolved=-1": -1, "17": -1, "unresolved=x": -1} {
		if got := parseUnresolved(metadata); got != want {
			t.Errorf("%q: got %d, want %d", metadata, got, want)
		}
	}
}
