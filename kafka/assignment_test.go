package kafka

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

var start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func sized(n, bytes int, at time.Time) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "push", Offset: int64(i), Value: make([]byte, bytes), Timestamp: at}
	}
	return rs
}

func options(change func(*SourceOptions)) *SourceOptions {
	o := SourceOptions{Topics: mainTopic("push"), Group: "g", BatchRecords: 100, BatchBytes: 1000, Linger: 20 * time.Millisecond}
	if change != nil {
		change(&o)
	}
	o = o.withDefaults()
	return &o
}

// part makes an assignment of a partition of the only topic.
func part(o *SourceOptions, id int32) *assignment {
	return newAssignment(o, newSource(*o, slog.New(slog.DiscardHandler)).topics[o.Topics[0].Name], id, nil, start)
}

func TestWhenABatchIsCut(t *testing.T) {
	tests := []struct {
		reason  string
		records int
		bytes   int // of each
		after   time.Duration
		want    int // records of the batch; 0 = not yet
	}{
		{"nothing there", 0, 0, time.Hour, 0},
		{"a few, and the linger is not over", 5, 1, 19 * time.Millisecond, 0},
		{"a few, and the linger is over", 5, 1, 20 * time.Millisecond, 5},
		{"full by records: at once", 100, 1, 0, 100},
		{"more than full: the rest stays", 130, 1, 0, 100},
		{"full by bytes: at once, and not above", 30, 90, 0, 11},
		{"one record larger than a batch goes alone", 2, 5000, 0, 1},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			a := part(options(nil), 0)
			a.take(sized(test.records, test.bytes, start), start)
			now := start.Add(test.after)
			ok, again := a.ready(now)
			if ok != (test.want > 0) {
				t.Fatalf("got ready %v, want %v", ok, test.want > 0)
			}
			if !ok {
				if test.records > 0 && !again.Equal(start.Add(20*time.Millisecond)) {
					t.Errorf("got next check at %v, want the end of the linger", again)
				}
				return
			}
			records, bytes := a.head(now)
			if len(records) != test.want || bytes != test.want*test.bytes {
				t.Errorf("got a batch of %d records and %d bytes, want %d and %d", len(records), bytes, test.want, test.want*test.bytes)
			}
			a.drop(len(records), bytes)
			if len(a.waiting) != test.records-test.want || a.waitingBytes != (test.records-test.want)*test.bytes {
				t.Errorf("%d records with %d bytes are left", len(a.waiting), a.waitingBytes)
			}
		})
	}
}

// A batch waits for a linger from its first record on. If each record that came began it
// anew, a partition whose records are less than a linger apart would wait for as many
// records as a batch takes.
func TestAStreamOfRecordsDoesNotPutABatchOff(t *testing.T) {
	for _, topic := range []string{"a lane's", "one that delays"} {
		t.Run(topic, func(t *testing.T) {
			came := start
			o := options(func(o *SourceOptions) {
				if o.BatchRecords = 1000; topic == "one that delays" {
					o.Topics = tier("push", time.Second)
				}
			})
			a := part(o, 0)
			if a.topic.delayed() {
				came = start.Add(time.Minute) // all are due when they come
			}
			for i := range 10 {
				now := came.Add(time.Duration(i) * 5 * time.Millisecond)
				if ok, again := a.ready(now); i > 0 && (ok != (i == 4) || !ok && !again.Equal(came.Add(20*time.Millisecond))) {
					t.Fatalf("after %v: ready %t, to be asked again at %v; want a batch after 20 ms", now.Sub(came), ok, again.Sub(came))
				} else if ok {
					records, bytes := a.head(now)
					if len(records) != 4 {
						t.Errorf("got a batch of %d records, want the 4 that came within the linger", len(records))
					}
					a.drop(len(records), bytes)
					break
				}
				a.take([]*kgo.Record{retryRecord(start, time.Time{})}, now)
			}
			// What is left over begins its own linger when it came.
			a.take([]*kgo.Record{retryRecord(start, time.Time{})}, came.Add(21*time.Millisecond))
			a.take([]*kgo.Record{retryRecord(start, time.Time{})}, came.Add(40*time.Millisecond))
			a.drop(1, a.waiting[0].bytes())
			if ok, again := a.ready(came.Add(41 * time.Millisecond)); ok || !again.Equal(came.Add(60*time.Millisecond)) {
				t.Errorf("what came after 40 ms: ready %t, to be asked again after %v; want after 60 ms", ok, again.Sub(came))
			}
		})
	}
}

func retryRecord(at time.Time, notBefore time.Time) *kgo.Record {
	r := &kgo.Record{Topic: "push", Timestamp: at, Headers: []kgo.RecordHeader{header("pf-v", "1")}}
	if !notBefore.IsZero() {
		r.Headers = append(r.Headers, header("pf-not-before", fmt.Sprint(notBefore.UnixMilli())))
	}
	return r
}

func TestARetryRecordIsNeverEarly(t *testing.T) {
	o := options(func(o *SourceOptions) { o.Topics = tier("push", 30*time.Second) })
	tests := []struct {
		reason    string
		notBefore time.Time
		due       time.Duration // after the record's timestamp
		later     bool          // handed out before its not-before, to be produced again
	}{
		{"the tier's delay", time.Time{}, 30 * time.Second, false},
		{"a later not-before counts", start.Add(59 * time.Second), 59 * time.Second, false},
		{"one that is later by a tier would hold up those behind it", start.Add(60 * time.Second), 30 * time.Second, true},
		{"an earlier one does not shorten the delay", start.Add(time.Second), 30 * time.Second, false},
	}
	for _, test := range tests {
		t.Run(test.reason, func(t *testing.T) {
			a := part(o, 0)
			a.take([]*kgo.Record{retryRecord(start, test.notBefore)}, start)
			due := start.Add(test.due)
			if ok, again := a.ready(due.Add(-time.Millisecond)); ok || !again.Equal(due) {
				t.Errorf("1 ms early: got ready %v, next check at %v; want not ready, next check at %v", ok, again, due)
			}
			if at, early := a.early(due.Add(-time.Millisecond)); !early || !at.Equal(due) {
				t.Errorf("1 ms early: got held %v until %v", early, at)
			}
			if ok, _ := a.ready(due.Add(o.Linger)); !ok {
				t.Error("not ready when due and the linger is over")
			}
			if _, early := a.early(due); early {
				t.Error("held although due")
			}
			it := a.topic.items(a.waiting)[0]
			if marked := it.NotBefore.Equal(test.notBefore) && !it.NotBefore.IsZero(); marked != test.later {
				t.Errorf("got NotBefore %v, want it set: %v", it.NotBefore, test.later)
			}
		})
	}

	t.Run("those behind that are not due stay", func(t *testing.T) {
		a := part(o, 0)
		a.take([]*kgo.Record{retryRecord(start, time.Time{}), retryRecord(start.Add(time.Second), time.Time{})}, start.Add(time.Second))
		records, _ := a.head(start.Add(30*time.Second + 500*time.Millisecond))
		if len(records) != 1 {
			t.Errorf("got a batch of %d, want only the record that is due", len(records))
		}
	})
}

func TestAnUnreadableRetryRecordStopsItsPartition(t *testing.T) {
	o := options(func(o *SourceOptions) { o.Topics = tier("push", time.Second) })
	a := part(o, 4)
	bad := retryRecord(start, time.Time{})
	bad.Offset, bad.Headers = 8, []kgo.RecordHeader{header("pf-v", "9")}
	good := retryRecord(start, time.Time{})
	good.Offset = 7
	a.take([]*kgo.Record{good, bad, retryRecord(start, time.Time{})}, start)
	if len(a.waiting) != 1 || a.waiting[0].offset != 7 {
		t.Errorf("got %d records waiting, want only the one before the unreadable one", len(a.waiting))
	}
	e := a.stopped
	if e == nil || e.Offset != 8 || e.Partition.ID != 4 {
		t.Errorf("got %v, want a PartitionError at offset 8 of partition 4", a.stopped)
	}
}

func TestAFullWindowHasHysteresis(t *testing.T) {
	o := options(func(o *SourceOptions) { o.BatchRecords, o.BatchBytes, o.OpenBatches = 10, 1000, 4 })
	a := part(o, 0)
	admit := func(n, bytes int) *pipeline.Batch {
		a.take(sized(n, bytes, start), start)
		records, size := a.head(start)
		b := &pipeline.Batch{Items: make([]pipeline.Item, len(records))}
		for i := range b.Items {
			b.Items[i].Offset = records[i].offset
		}
		a.drop(len(records), size)
		a.tracker.Admit(b)
		a.out(len(records), size)
		return b
	}
	bs := []*pipeline.Batch{admit(10, 1), admit(10, 1), admit(10, 1)}
	if a.full() {
		t.Fatal("full with 30 of 40 open: one batch is free")
	}
	bs = append(bs, admit(1, 1))
	if !a.full() {
		t.Fatal("not full with 31 of 40 open: less than a batch is free")
	}
	bs[0].Tracker = a.tracker
	a.tracker.Done(itemsOf(bs[0]))
	if !a.full() {
		t.Error("resumed with 21 of 40 open: half is not free yet")
	}
	a.tracker.Done(itemsOf(bs[3]))
	a.tracker.Done(itemsOf(bs[2]))
	if !a.full() {
		t.Error("resumed although the watermark has not moved: done out of order frees nothing")
	}
	a.tracker.Done(itemsOf(bs[1]))
	if !a.full() {
		t.Error("resumed although nothing is committed: the next owner would begin before all of it")
	}
	a.tracker.Committed(1000)
	if a.full() {
		t.Error("still full with nothing open")
	}

	for range 3 {
		admit(1, 900)
	}
	if a.full() {
		t.Error("full with 2,700 of 4,000 bytes")
	}
	last := admit(1, 900)
	if !a.full() {
		t.Error("not full with 3,600 of 4,000 bytes: a batch of bytes is not free")
	}
	a.tracker.Done(itemsOf(last))
	if _, bytes := a.open(); bytes != 3600 {
		t.Errorf("got %d bytes open, want 3600: the last record is done, but earlier ones are open", bytes)
	}
}

// While a batch is cut, its records count twice. That neither pauses the partition for
// longer, nor makes it forget the bytes of open batches.
func TestABatchThatIsCutPausesNothing(t *testing.T) {
	o := options(func(o *SourceOptions) { o.BatchRecords, o.BatchBytes, o.OpenBatches = 10, 1000, 4 })
	a := part(o, 0)
	take := func(n int) (end func()) {
		a.take(sized(n, 1, start), start)
		records, size := a.head(start)
		b := &pipeline.Batch{Items: make([]pipeline.Item, len(records))}
		for i := range b.Items {
			b.Items[i].Offset = records[i].offset
		}
		a.busy = true
		a.tracker.Admit(b)
		return func() {
			a.busy = false
			a.drop(len(records), size)
			a.out(len(records), size)
		}
	}
	take(10)()
	take(5)()
	end := take(10)
	if !a.full() {
		t.Error("not full with up to 35 of 40 open: less than a batch may be free")
	}
	end()
	if a.full() {
		t.Error("full with 25 of 40 open: a batch is free")
	}
	if records, bytes := a.open(); records != 25 || bytes != 25 {
		t.Errorf("got %d records with %d bytes open, want 25 and 25", records, bytes)
	}
}

func TestNothingIsHandedOutNextToItsOwnCopy(t *testing.T) {
	o := options(nil)
	former := part(o, 0)
	b := &pipeline.Batch{Items: make([]pipeline.Item, 1)}
	former.tracker.Admit(b)
	former.tracker.Fence()

	a := part(o, 0)
	a.after(former, start.Add(20*time.Second))
	a.take(sized(1, 1, start), start)
	now := start.Add(time.Second)
	if ok, _ := a.ready(now); ok {
		t.Fatal("a batch was returned while the former assignment had work in flight")
	}
	if ok, _ := a.ready(start.Add(21 * time.Second)); !ok {
		t.Error("waits although nothing is in flight")
	}

	c := part(o, 0)
	c.after(former, start.Add(20*time.Second))
	c.take(sized(1, 1, start), start)
	former.tracker.Abandon(itemsOf(b))
	if ok, _ := c.ready(now); !ok {
		t.Error("waits although all work in flight has ended")
	}
}

// What the tracker could not take is offered to it again after a moment, and not
// before: it would be asked over and over.
func TestWhatIsLeftOverIsOfferedAgain(t *testing.T) {
	a := part(options(nil), 0)
	at := start.Add(recheck)
	a.rest, a.restAt = make([]pipeline.Item, 1), at
	for _, tt := range []struct {
		now  time.Time
		want bool
	}{{start, false}, {at.Add(-1), false}, {at, true}, {at.Add(1), true}} {
		if ok, again := a.ready(tt.now); ok != tt.want || !again.Equal(at) {
			t.Errorf("after %v: got ready %v, next check at %v; want %v and %v", tt.now.Sub(start), ok, again, tt.want, at)
		}
	}
}

// The lag is known when the log's end is, and either what was committed or where
// the log starts.
func TestALagIsNotGuessed(t *testing.T) {
	a := part(options(nil), 0)
	for _, step := range []struct {
		reason string
		learn  func()
		want   int64
	}{
		{"nothing is known", func() {}, -1},
		{"the end is", func() { a.high = 10 }, -1},
		{"where the log starts", func() { a.from = 2 }, 8},
		{"what follows are no records", func() { a.empty = 3 }, 7},
		{"what was committed", func() { a.committed = 6 }, 4},
	} {
		if step.learn(); a.lag() != step.want {
			t.Errorf("%s: got lag %d, want %d", step.reason, a.lag(), step.want)
		}
	}
}
