package kafka

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

func TestAHeldRecordIsDueAtItsNotBefore(t *testing.T) {
	o := options(func(o *SourceOptions) { o.Topics = []SourceTopic{{Name: "push.hold.apns", Kind: Hold}} })
	a := part(o, 0)
	due := start.Add(5 * time.Minute)
	a.take([]*kgo.Record{retryRecord(start, due)}, start)
	if ok, again := a.ready(due.Add(-time.Millisecond)); ok || !again.Equal(due) {
		t.Errorf("1 ms early: got ready %v, next check at %v", ok, again)
	}
	if ok, _ := a.ready(due.Add(o.Linger)); !ok {
		t.Error("not ready when due")
	}
	if it := a.topic.items(a.waiting)[0]; !it.NotBefore.IsZero() {
		t.Error("marked as later, so it would be produced again")
	}
	now := part(o, 1)
	now.take([]*kgo.Record{retryRecord(start, time.Time{})}, start)
	if ok, _ := now.ready(start.Add(o.Linger)); !ok {
		t.Error("a held record without a due time waits forever")
	}
}

// Two routes share a hold topic; one is stopped for 5 minutes, the other for 30 s.
// Records of the second are handed out in time, together with those of the first that
// are ahead of them. These are held again if their route is still stopped.
func TestAHeldRecordDoesNotWaitBehindOneHeldLonger(t *testing.T) {
	o := options(func(o *SourceOptions) { o.Topics = []SourceTopic{{Name: "push.hold.apns", Kind: Hold}} })
	a := part(o, 0)
	for _, after := range []time.Duration{5 * time.Minute, 10 * time.Minute, 30 * time.Second, 2 * time.Minute, 2 * time.Minute, time.Minute, 7 * time.Minute} {
		a.take([]*kgo.Record{retryRecord(start, start.Add(after))}, start)
	}
	left := 7
	for _, step := range []struct {
		after time.Duration
		out   int
	}{{30 * time.Second, 3}, {time.Minute, 3}, {7 * time.Minute, 1}} {
		due := start.Add(step.after)
		if ok, again := a.ready(due.Add(-time.Millisecond)); ok || !again.Equal(due) {
			t.Errorf("1 ms before %v: got ready %v, next check at %v", step.after, ok, again.Sub(start))
		}
		if ok, _ := a.ready(due.Add(o.Linger)); !ok {
			t.Errorf("not ready after %v", step.after)
		}
		records, bytes := a.head(due)
		if len(records) != step.out {
			t.Errorf("after %v: got a batch of %d, want %d", step.after, len(records), step.out)
		}
		a.drop(len(records), bytes)
		left -= len(records)
	}
	if left != 0 || len(a.waiting) != 0 {
		t.Errorf("%d records are left, want 0", len(a.waiting))
	}
}

// Records after a held record that is not due are read too: they may be due sooner.
func TestAHoldTopicIsReadAhead(t *testing.T) {
	c := newCluster(t, 1, []string{"push.retry.2h", "push.retry.1s", "push.hold.apns"})
	s := c.source(SourceOptions{Topics: waitingTopics(), BatchRecords: 20, OpenRecords: 240, Linger: time.Millisecond})
	write := func(id int, notBefore time.Time) {
		r := record("push.hold.apns", 0, id)
		r.Headers = []kgo.RecordHeader{header("pf-v", "1"), header("pf-not-before", unixMilli(notBefore))}
		c.produceRecords(r)
	}
	write(1, time.Now().Add(time.Hour))
	eventually(t, "the first is read", func() bool {
		for _, p := range s.State() {
			if p.Open == 1 {
				return true
			}
		}
		return false
	})
	write(2, time.Now())
	if got := len(nextItems(t, s, 2)); got == 0 {
		t.Error("got no batch")
	}
}

func TestThePatienceIsTheSmallestTiers(t *testing.T) {
	o := options(func(o *SourceOptions) {
		o.Topics = append(append(tier("push.retry.5m", 5*time.Minute), tier("push.retry.30s", 30*time.Second)...), SourceTopic{Name: "push.hold.fcm", Kind: Hold})
	})
	for _, test := range []struct {
		wait  time.Duration // how much later than the tier's delay the not-before is
		later bool
	}{{29 * time.Second, false}, {30 * time.Second, true}, {time.Hour, true}} {
		five := newSource(*o, Options{}.log()).topics["push.retry.5m"]
		notBefore := start.Add(5*time.Minute + test.wait)
		due, later := five.due(&polledRecord{timestamp: start, headers: &retryHeaders{notBefore: notBefore}})
		if test.later != later.Equal(notBefore) || test.later == due.Equal(notBefore) {
			t.Errorf("%v after its tier: got due %v, later %v; want it produced again: %v", test.wait, due, later, test.later)
		}
	}
}

// waitingTopics are two tiers and a hold topic of a lane.
func waitingTopics() []SourceTopic {
	return append(append(tier("push.retry.2h", 2*time.Hour), tier("push.retry.1s", time.Second)...), SourceTopic{Name: "push.hold.apns", Kind: Hold})
}

func TestTopicsTakeTurns(t *testing.T) {
	s := newSource(*options(func(o *SourceOptions) { o.Topics = waitingTopics() }), Options{}.log())
	now := start.Add(3 * time.Hour)
	for _, p := range []push.Partition{{Topic: "push.retry.2h", ID: 0}, {Topic: "push.retry.2h", ID: 1}, {Topic: "push.retry.2h", ID: 2},
		{Topic: "push.retry.1s", ID: 7}, {Topic: "push.hold.apns", ID: 3}} {
		a := s.newAssignment(p)
		s.adopt(a)
		a.take([]*kgo.Record{retryRecord(start, time.Time{})}, start)
	}
	var order []string
	for range 6 {
		a, _ := s.pick(now)
		order = append(order, a.topic.Name[len("push."):]+"/"+strconv.Itoa(int(a.partition.ID)))
		a.busy = false
	}
	if got, want := fmt.Sprint(order), "[retry.2h/1 hold.apns/3 retry.1s/7 retry.2h/2 hold.apns/3 retry.1s/7]"; got != want {
		t.Errorf("got %s, want %s: one partition of a topic, then the next topic", got, want)
	}
}

func TestWhatWaitsLongTakesNoRoomFromTheOthers(t *testing.T) {
	const partitions = 4
	c := newCluster(t, partitions, []string{"push.retry.2h", "push.retry.1s", "push.hold.apns"})
	s := c.source(SourceOptions{Topics: waitingTopics(), BatchRecords: 20, OpenRecords: 240, Linger: time.Millisecond})
	at := time.Now()
	write := func(topic string, n int, notBefore time.Time) {
		var rs []*kgo.Record
		for p := range int32(partitions) {
			for i := range n {
				r := record(topic, p, i)
				r.Timestamp = at
				r.Headers = []kgo.RecordHeader{header("pf-v", "1"), header("pf-not-before", unixMilli(notBefore))}
				rs = append(rs, r)
			}
		}
		c.produceRecords(rs...)
	}
	write("push.retry.2h", 300, at) // more than all topics together may have open
	eventually(t, "the long tier is polled", func() bool {
		polled := 0
		for _, p := range s.State() {
			if p.Open > 0 {
				polled++
			}
		}
		return polled == partitions // every partition is polled: none waits behind another
	})
	write("push.hold.apns", 300, at.Add(time.Hour))
	write("push.retry.1s", 100, at)
	for got := 0; got < partitions*100; {
		b := nextItems(t, s, 1)[0]
		if b.Partition.Topic != "push.retry.1s" {
			t.Fatalf("got a batch of %s before it was due", b.Partition.Topic)
		}
		got += len(b.Items)
		done(b)
		if err := s.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		open := make(map[string]int)
		for _, p := range s.State() {
			open[p.Partition.Topic] += p.Open
		}
		for topic, n := range open {
			if n > 240/3 {
				t.Fatalf("got %d open records of %s, its share is %d", n, topic, 240/3)
			}
		}
	}
}
