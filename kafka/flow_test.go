package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

func TestItemsCarryWhatTheRecordSays(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	at := time.UnixMilli(time.Now().UnixMilli())
	good := record("push", 0, 1)
	good.Timestamp = at
	good.Headers = []kgo.RecordHeader{header("traceparent", "tp"), header("pf-attempt", "9"), header("pf-first-seen", "1"), header("pf-allowed", "1")}
	c.produceRecords(good, &kgo.Record{Topic: "push", Key: []byte("u1")}, &kgo.Record{Topic: "push", Value: []byte("{")})
	s := c.source(SourceOptions{Topics: mainTopic("push")})
	var items []*pipeline.Item
	for _, b := range nextItems(t, s, 3) {
		items = append(items, itemsOf(b)...)
	}
	it := items[0]
	if it.ID != "n-0-1" || it.UserID != "u1" || string(it.Key) != "u1" || len(it.Value) == 0 || it.Verdict != push.Undecided {
		t.Errorf("message not decoded: %q, verdict %v", it.ID, it.Verdict)
	}
	if it.Attempt != 0 || !it.FirstSeen.Time().Equal(at) || !it.Timestamp.Time().Equal(at) || it.Allowed {
		t.Errorf("a producer's pf headers were used: attempt %d, first seen %v, allowed %t", it.Attempt, it.FirstSeen, it.Allowed)
	}
	if len(it.Trace) != 1 || it.Trace[0].Key != "traceparent" {
		t.Errorf("got trace %v, want only the traceparent", it.Trace)
	}
	if it := items[1]; it.Verdict != push.Dead || it.Reason != push.EmptyValue || it.Offset != 1 {
		t.Errorf("tombstone: got %v %v, want dead: empty value", it.Verdict, it.Reason)
	}
	if it := items[2]; it.Verdict != push.Dead || it.Reason != push.BadJSON {
		t.Errorf("broken JSON: got %v %v", it.Verdict, it.Reason)
	}
}

func TestAFullWindowStopsThePollAndGoesOnLater(t *testing.T) {
	const window, total = 40, 500
	c := newCluster(t, 2, []string{"push"})
	m := NewMetrics(nil)
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Metrics: m})
	c.produce("push", 0, 0, total)
	c.produce("push", 1, 0, total)

	open := func() (most int) {
		for _, p := range s.State() {
			most = max(most, p.Open)
		}
		return most
	}
	var bs []*pipeline.Batch
	taken := make(map[int32]int)
	eventually(t, "both windows are full", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if b, err := s.Next(ctx); err == nil {
			bs, taken[b.Partition.ID] = append(bs, b), taken[b.Partition.ID]+len(b.Items)
		}
		return testutil.ToFloat64(m.paused.WithLabelValues("push")) == 2 && len(bs) > 0
	})
	for _, b := range bs { // lines go by it
		eventually(t, "a tracker is told that it is full", b.Tracker.Full)
	}
	last := bs[0].Tracker
	for seen := 0; len(bs) > 0; {
		if n := open(); n > window {
			t.Fatalf("got %d open records of a partition, the window is %d", n, window)
		}
		done(bs[0])
		bs = bs[1:]
		if err := s.Commit(t.Context()); err != nil { // without a commit, done frees nothing
			t.Fatal(err)
		}
		if seen = taken[0] + taken[1]; seen < 2*total && len(bs) < 4 {
			b := nextItems(t, s, 1)[0]
			bs, taken[b.Partition.ID] = append(bs, b), taken[b.Partition.ID]+len(b.Items)
		}
	}
	if taken[0] != total || taken[1] != total {
		t.Errorf("got %v records, want %d of each partition", taken, total)
	}
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, b := c.committed("g", "push", 0), c.committed("g", "push", 1); a != total || b != total {
		t.Errorf("got commits %d and %d, want %d", a, b, total)
	}
	eventually(t, "a tracker is told that it has room", func() bool { return !last.Full() })
}

func TestTheCapOverAllPartitionsHolds(t *testing.T) {
	const most, total = 30, 200
	c := newCluster(t, 4, []string{"push"})
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 20, OpenRecords: most, Linger: time.Millisecond})
	for p := range int32(4) {
		c.produce("push", p, 0, total/4)
	}
	for seen := 0; seen < total; {
		b := nextItems(t, s, 1)[0]
		open := 0
		for _, p := range s.State() {
			open += p.Open
		}
		if open > most {
			t.Fatalf("got %d open records, the cap is %d", open, most)
		}
		seen += len(b.Items)
		done(b)
		if err := s.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRetriesComeWhenDueAndNotBefore(t *testing.T) {
	const delay = time.Second
	c := newCluster(t, 1, []string{"push.retry.1s"})
	p := c.producer(ProducerOptions{Tiers: []Tier{{"1s", delay}}})
	s := c.source(SourceOptions{Topics: tier("push.retry.1s", delay)})

	first := time.UnixMilli(1_790_000_000_000)
	later := time.Now().Add(1600 * time.Millisecond) // less than a tier after it is due
	var hs []pipeline.Handover
	for i, due := range []time.Time{time.Now(), later} {
		it := item("push")
		it.Value = fmt.Appendf(nil, `{"id":"n%d","app":"shop","user_id":"u1","title":"t"}`, i)
		it.Trace, it.Allowed = []pipeline.RecordHeader{{Key: "traceparent", Value: []byte("tp")}}, i == 0
		hs = append(hs, pipeline.Handover{To: pipeline.ToRetry, Item: it, Attempt: 1, Hops: 2, Devices: []string{"d1", "d2"}, NotBefore: due, Reason: "x"})
	}
	if err := p.Produce(t.Context(), hs); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b := nextItems(t, s, 1)[0]
		now := time.Now()
		for _, it := range itemsOf(b) {
			if early := it.Timestamp.Time().Add(delay).Sub(now); early > 0 {
				t.Errorf("%s came %v before its tier's delay", it.ID, early)
			}
			if it.ID == "n1" && now.Before(later) {
				t.Errorf("n1 came %v before its own not-before", later.Sub(now))
			}
			if it.Attempt != 1 || it.Hops != 2 || len(it.Devices) != 2 || !it.FirstSeen.Time().Equal(first) || !it.Confirm || !b.Retry {
				t.Errorf("%s: attempt %d, hops %d, devices %v, first seen %v, confirm %v", it.ID, it.Attempt, it.Hops, it.Devices, it.FirstSeen, it.Confirm)
			}
			if it.Allowed != (it.ID == "n0") {
				t.Errorf("%s: got Allowed %t, but only n0 has that header", it.ID, it.Allowed)
			}
			if origin(it) != "push/2/41" {
				t.Errorf("got origin %s", origin(it))
			}
		}
		done(b)
	}
}

func TestACopyInARetryTopicWaitsForTheFirst(t *testing.T) {
	c := newCluster(t, 1, []string{"push.retry.1ms"})
	s := c.source(SourceOptions{Topics: tier("push.retry.1ms", time.Millisecond), Linger: 50 * time.Millisecond})
	var rs []*kgo.Record
	for _, i := range []int{1, 2, 1, 3} {
		r := record("push.retry.1ms", 0, i)
		r.Headers = []kgo.RecordHeader{header("pf-v", "1"), header("pf-attempt", "1")}
		rs = append(rs, r)
	}
	c.produceRecords(rs...)
	first := nextItems(t, s, 2)
	for _, b := range first {
		for _, it := range itemsOf(b) {
			if it.Offset > 1 {
				t.Fatalf("got offset %d while its first copy is open", it.Offset)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if b, err := s.Next(ctx); err == nil {
		t.Fatalf("got offset %d while the first copy is open", b.Items[0].Offset)
	}
	done(first...)
	second := nextItems(t, s, 2)
	if it := second[0].Items[0]; it.Offset != 2 || it.Verdict != push.Undecided || !it.Confirm {
		t.Errorf("after the end of the first copy: got offset %d, %v, confirm %v; want 2 with a confirm read", it.Offset, it.Verdict, it.Confirm)
	}
	done(second...)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.committed("g", "push.retry.1ms", 0); got != 4 {
		t.Errorf("got commit %d, want 4", got)
	}
}

// stops collects the errors of stopped partitions.
type stops struct {
	mu  sync.Mutex
	all []*PartitionError
}

// health is a SourceOptions.Health.
func (s *stops) health(_ push.Partition, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := errors.AsType[*PartitionError](err); ok {
		s.all = append(s.all, e)
	}
}

func (s *stops) list() []*PartitionError {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*PartitionError(nil), s.all...)
}

func TestAnOffsetThatIsGoneStopsItsPartitionAlone(t *testing.T) {
	c := newCluster(t, 2, []string{"push"})
	first := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Drain: mortal})
	c.produce("push", 0, 0, 10)
	c.produce("push", 1, 0, 10)
	for _, b := range nextItems(t, first, 20) {
		b.Tracker.Done(itemsOf(b)[:5])
	}
	if err := first.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteRecords("push", 0, 8); err != nil { // as retention would
		t.Fatal(err)
	}

	var stopped stops
	m := NewMetrics(nil)
	second := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Health: stopped.health, Metrics: m})
	for _, b := range nextItems(t, second, 5) {
		if b.Partition.ID != 1 {
			t.Errorf("partition %d continues at %d: records were skipped", b.Partition.ID, b.Items[0].Offset)
		}
		done(b)
	}
	eventually(t, "the partition is reported", func() bool { return len(stopped.list()) > 0 })
	if e := stopped.list()[0]; e.Partition.ID != 0 || !errors.Is(e, kerr.OffsetOutOfRange) {
		t.Errorf("got %v, want partition 0 out of range", e)
	}
	if e := stopped.list()[0]; e.Offset != 5 || e.Gap != 3 || !strings.Contains(e.Error(), "3 offsets are missing") {
		t.Errorf("got stop at %d with a gap of %d (%v), want 5 and a gap of 3", e.Offset, e.Gap, e)
	}
	if n := testutil.ToFloat64(m.gap.WithLabelValues("push")); n != 3 {
		t.Errorf("the metric counts %v missing offsets, want 3", n)
	}
	eventually(t, "the metric says so", func() bool { return testutil.ToFloat64(m.stopped.WithLabelValues("push")) == 1 })
	c.produce("push", 1, 10, 5)
	done(nextItems(t, second, 5)...)
	if n := len(stopped.list()); n != 1 {
		t.Errorf("got %d reports, want 1", n)
	}
	if err := second.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, b := c.committed("g", "push", 0), c.committed("g", "push", 1); a != 5 || b != 15 {
		t.Errorf("got commits %d and %d, want 5 and 15", a, b)
	}
}

func TestAnUnknownHeaderVersionStopsItsPartitionAlone(t *testing.T) {
	c := newCluster(t, 2, []string{"push.retry.1ms"})
	var stopped stops
	s := c.source(SourceOptions{Topics: tier("push.retry.1ms", time.Millisecond), Health: stopped.health})
	versioned := func(partition int32, i int, v string) *kgo.Record {
		r := record("push.retry.1ms", partition, i)
		r.Headers = []kgo.RecordHeader{header("pf-v", v)}
		return r
	}
	c.produceRecords(versioned(0, 1, "1"), versioned(0, 2, "2"), versioned(0, 3, "1"), versioned(1, 1, "1"), versioned(1, 2, "1"))
	bs := nextItems(t, s, 3)
	done(bs...)
	eventually(t, "the partition is reported", func() bool { return len(stopped.list()) == 1 })
	if e := stopped.list()[0]; e.Partition.ID != 0 || e.Offset != 1 || !strings.Contains(e.Error(), "pf-v") {
		t.Errorf("got %v, want partition 0 at offset 1 and the header", e)
	}
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a, b := c.committed("g", "push.retry.1ms", 0), c.committed("g", "push.retry.1ms", 1); a != 1 || b != 2 {
		t.Errorf("got commits %d and %d, want 1 and 2: nothing may be skipped", a, b)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	s := c.source(SourceOptions{Topics: mainTopic("push")})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Next(ctx)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}
