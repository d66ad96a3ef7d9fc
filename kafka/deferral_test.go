package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// More is put off than a partition may have open, and none of it ends. A retry that is
// handed over behind it comes all the same.
func TestWhatIsPutOffHoldsUpNoRetry(t *testing.T) {
	c := newCluster(t, 1, []string{"push.retry.50ms", "push.defer.50ms"})
	p := c.producer(ProducerOptions{Tiers: []Tier{{"50ms", 50 * time.Millisecond}}})
	deferred := make([]pipeline.Handover, 300)
	for i := range deferred {
		deferred[i] = pipeline.Handover{To: pipeline.ToDefer, Item: item("push"), Hops: 1, NotBefore: time.Now(), State: push.StateHeld, Reason: push.LimitWaits}
		deferred[i].Item.Value = record("push", 0, i).Value
	}
	if err := p.Produce(t.Context(), deferred); err != nil {
		t.Fatal(err)
	}
	retry := pipeline.Handover{To: pipeline.ToRetry, Item: item("push"), Attempt: 1, NotBefore: time.Now(), State: push.StateRetrying, Reason: "Timeout"}
	if err := p.Produce(t.Context(), []pipeline.Handover{retry}); err != nil {
		t.Fatal(err)
	}
	const batch, window = 20, 4 * 20
	s := c.source(SourceOptions{Topics: append(tier("push.defer.50ms", 50*time.Millisecond), tier("push.retry.50ms", 50*time.Millisecond)...),
		BatchRecords: batch, OpenRecords: 2 * window, Linger: time.Millisecond})
	full := func() bool {
		for _, p := range s.State() {
			if p.Partition.Topic == "push.defer.50ms" && p.Open > window-batch {
				return true
			}
		}
		return false
	}
	eventually(t, "what is put off fills its share", full)
	for {
		b := nextItems(t, s, 1)[0] // none is ever done
		if b.Partition.Topic == "push.retry.50ms" {
			break
		}
		if it := b.Items[0]; it.Attempt != 0 || it.Hops != 1 || it.HandedAs != push.StateHeld || !b.Retry {
			t.Fatalf("put off: attempt %d, hops %d, handed over as %v", it.Attempt, it.Hops, it.HandedAs)
		}
	}
	if !full() {
		t.Error("the retry came because what was put off had made room")
	}
}

// How often a record is handed over until its not-before, with the default tiers: no
// attempt is counted, but each costs a confirm read and a row. docs/operations.md has the
// last of these figures.
func TestHowOftenADeferralIsHandedOver(t *testing.T) {
	p := &Producer{options: ProducerOptions{DeferTiers: []Tier{{"30s", 30 * time.Second}, {"2m", 2 * time.Minute}, {"5m", 5 * time.Minute}, {"30m", 30 * time.Minute}, {"2h", 2 * time.Hour}}}}
	o := options(func(o *SourceOptions) {
		o.Topics = nil
		for _, tr := range p.options.DeferTiers {
			o.Topics = append(o.Topics, tier(DeferTopic("push", tr.Name), tr.Delay)...)
		}
	})
	topics := newSource(*o, Options{}.log()).topics
	for _, tt := range []struct {
		reason    string
		wait      time.Duration
		handovers int
		late      time.Duration
	}{
		{"no shorter than the first tier", 4 * time.Second, 1, 26 * time.Second},
		{"until its not-before, in place", 59 * time.Second, 1, 0},
		{"twice the first", time.Minute, 2, 0},
		{"its last five minutes: 2 x 2 m, 30 s", 5*time.Minute - 10*time.Second, 3, 0},
		{"a tier", 5 * time.Minute, 1, 0},
		{"an hour: 30 m, 5 x 5 m, 2 x 2 m", time.Hour - time.Minute, 8, 0},
		{"2 h are the longest", 24 * time.Hour, 12, 0},
		{"a night: 3 x 2 h, 3 x 30 m, 5 x 5 m, 2 x 2 m", 8*time.Hour - time.Minute, 13, 0},
	} {
		now, notBefore, n := start, start.Add(tt.wait), 0
		for later := notBefore; !later.IsZero(); n++ {
			topic := topics[DeferTopic("push", fitting(p.options.DeferTiers, notBefore.Sub(now)))]
			now, later = topic.due(&polledRecord{timestamp: now, headers: &retryHeaders{notBefore: notBefore}})
		}
		if late := now.Sub(notBefore); n != tt.handovers || late != tt.late {
			t.Errorf("%s: %v took %d hand-overs and came %v late, want %d and %v", tt.reason, tt.wait, n, late, tt.handovers, tt.late)
		}
	}
}

// In the groups of retries, workers of a version without deferral topics meet others,
// and one of them may be the leader.
func TestDeferralsWaitForAMemberThatReadsThem(t *testing.T) {
	for _, balancer := range []string{CooperativeSticky, EagerRange} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, upgradePartitions, []string{"push.retry.1ms", "push.defer.1ms"})
			upgrade(t, c, "push", SourceOptions{Group: "g", Balancer: balancer})
		})
	}
}

func TestRealDeferralsWaitForAMemberThatReadsThem(t *testing.T) {
	for _, o := range []SourceOptions{{Balancer: CooperativeSticky}, {Balancer: EagerRange}, {Protocol: ServerSide}} {
		t.Run(o.Balancer+o.Protocol, func(t *testing.T) {
			lane := ownName(t)
			c := realCluster(t, TopicSpec{Name: lane + ".retry.1ms", Partitions: upgradePartitions, Replication: 1}, TopicSpec{Name: lane + ".defer.1ms", Partitions: upgradePartitions, Replication: 1})
			o.Group, o.Session = lane, 6*time.Second
			upgrade(t, c, lane, o)
		})
	}
}

const upgradePartitions = 3

// upgrade lets a member that reads the deferral topic join one that does not, and leave
// it again: what is put off meanwhile waits, and the next one that reads it begins
// where the first has ended.
func upgrade(t *testing.T, c *cluster, lane string, so SourceOptions) {
	t.Helper()
	retries, deferrals := lane+".retry.1ms", lane+".defer.1ms"
	so.BatchRecords, so.Linger, so.Drain = 20, 2*time.Millisecond, 10*time.Second
	before, after := so, so
	before.Topics = tier(retries, time.Millisecond)
	after.Topics = append(tier(retries, time.Millisecond), tier(deferrals, time.Millisecond)...)

	const each = 20
	l := &ledger{done: make(map[string]int)}
	written := 0 // of each partition of both topics
	write := func(topic string) {
		t.Helper()
		var rs []*kgo.Record
		for p := range int32(upgradePartitions) {
			for i := range each {
				r := record(topic, p, written+i)
				r.Headers = []kgo.RecordHeader{header("pf-v", "1")}
				rs = append(rs, r)
			}
		}
		written += each
		c.produceRecords(rs...)
	}
	done := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return l.distinct() == upgradePartitions*written })
	}
	reads := func(w *worker, topic string) (n int) {
		for _, p := range w.source.State() {
			if p.Partition.Topic == topic {
				n++
			}
		}
		return n
	}

	write(retries)
	old := startWorker(c, l, before, 1)
	done("the old member works")
	upgraded := startWorker(c, l, after, 2)
	eventually(t, "the new one has all of the deferral topic", func() bool { return reads(upgraded, deferrals) == upgradePartitions })
	write(deferrals)
	write(retries)
	done("both topics are read")
	upgraded.leave(t)

	eventually(t, "the old one has all retries again", func() bool { return reads(old, retries) == upgradePartitions })
	write(retries)
	done("retries go on")
	ended := l.distinct()
	write(deferrals)
	again := startWorker(c, l, after, 3)
	done("what waited is read")
	again.leave(t)
	old.leave(t)
	if more := l.distinct() - ended; more != upgradePartitions*each {
		t.Errorf("%d deferrals came after all, want %d", more, upgradePartitions*each)
	}
	for p := range int32(upgradePartitions) {
		if got := c.committed(so.Group, deferrals, p); got != 2*each {
			t.Errorf("partition %d: got commit %d, want the end, %d", p, got, 2*each)
		}
	}
}
