package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
)

// owners notes who was handed which offset: no two owners may have one at once.
type owners struct {
	mu      sync.Mutex
	last    map[string]*pipeline.Tracker // by place
	done    map[string]int
	wrong   []string
	repeats int
}

func newOwners() *owners {
	return &owners{last: make(map[string]*pipeline.Tracker), done: make(map[string]int)}
}

func place(it *pipeline.Item) string {
	return fmt.Sprintf("%s/%d/%d", it.Partition.Topic, it.Partition.ID, it.Offset)
}

// send notes that b is sent, and returns whether its owner may send it. A former owner
// of the same record must have lost that right.
func (o *owners) send(b *pipeline.Batch) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if b.Tracker.Lapsed(now) {
		return false
	}
	for i := range b.Items {
		at := place(&b.Items[i])
		switch former := o.last[at]; {
		case former == nil:
		case former == b.Tracker:
			o.wrong = append(o.wrong, at+" was sent twice in one assignment")
		case !former.Lapsed(now):
			o.wrong = append(o.wrong, at+" was sent while its former owner may send it")
		case !b.Items[i].Confirm:
			o.wrong = append(o.wrong, at+" came again, not to be confirmed")
		default:
			o.repeats++
		}
		o.last[at] = b.Tracker
	}
	return true
}

func (o *owners) finished(items []*pipeline.Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, it := range items {
		o.done[place(it)]++
	}
}

func (o *owners) distinct() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.done)
}

// churner is a member that works until it leaves or its network fails.
type churner struct {
	source *Source
	tap    *tap
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func startChurner(c *cluster, o *owners, so SourceOptions, seed uint64) *churner {
	m := &churner{tap: &tap{}}
	tapped := *c
	tapped.options.Dial = m.tap.dial
	m.source = tapped.source(so)
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	rng := rand.New(rand.NewPCG(seed, 7))
	m.wg.Go(func() {
		for {
			b, err := m.source.Next(ctx)
			if err != nil {
				return
			}
			flight := time.Duration(rng.IntN(30)) * time.Millisecond
			m.wg.Go(func() {
				items := itemsOf(b)
				for !o.send(b) {
					if b.Tracker.Draining() || ctx.Err() != nil {
						b.Tracker.Abandon(items)
						return
					}
					wait(ctx, nil, time.Now().Add(recheck)) // until the lease is renewed or the partition is lost
				}
				time.Sleep(flight) // the provider's time
				o.finished(items)
				half := len(items) / 2
				b.Tracker.Done(items[half:])
				b.Tracker.Done(items[:half])
			})
		}
	})
	m.wg.Go(func() {
		for ctx.Err() == nil {
			wait(ctx, nil, time.Now().Add(20*time.Millisecond))
			_ = m.source.Commit(ctx) // the next one tries again
		}
	})
	return m
}

// leave ends the member. On a machine that stood still for a session, the group may have
// expelled it: then it says so, and others do again what it could not commit.
func (m *churner) leave(t *testing.T) {
	t.Helper()
	m.stop()
	m.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch err := m.source.Close(ctx); {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.IllegalGeneration):
		t.Logf("an expelled member leaves: %v", err)
	case err != nil:
		t.Errorf("leaving: %v", err)
	}
}

// die cuts the member off: it goes on, but nothing reaches the broker.
func (m *churner) die() { m.tap.closed.Store(true) }

// wake connects it again, so that it learns what happened, and leaves.
func (m *churner) wake(t *testing.T) {
	t.Helper()
	m.tap.open()
	m.stop()
	m.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.source.Close(ctx); err != nil {
		t.Logf("a member that was dead leaves: %v", err)
	}
}

// monotone samples a group's committed offsets until ctx ends, and returns those that
// went back.
func monotone(ctx context.Context, c *cluster, group string) (back []string, samples int, err error) {
	client, err := c.options.newClient(kgo.ClientID("sampler"))
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	highest := make(map[string]int64)
	for ctx.Err() == nil {
		offsets, err := admin.FetchOffsets(ctx, group)
		if err == nil {
			samples++
			offsets.Each(func(o kadm.OffsetResponse) {
				at := fmt.Sprintf("%s/%d", o.Topic, o.Partition)
				if o.At < highest[at] {
					back = append(back, fmt.Sprintf("%s from %d to %d", at, highest[at], o.At))
				}
				highest[at] = max(highest[at], o.At)
			})
		}
		wait(ctx, nil, time.Now().Add(50*time.Millisecond))
	}
	return back, samples, nil
}

// churn writes records while members join, leave and die at random. Then it lets the
// last ones finish.
func churn(t *testing.T, c *cluster, so SourceOptions, rounds int, seed uint64) {
	t.Helper()
	const partitions, burst = 6, 10
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	o, metrics := newOwners(), NewMetrics(nil)
	so.BatchRecords, so.Linger, so.Drain, so.Commit, so.Rebalance, so.Metrics = 20, 2*time.Millisecond, 10*time.Second, 10*time.Second, 30*time.Second, metrics
	written := 0
	write := func() {
		for _, topic := range so.Topics {
			for p := range int32(partitions) {
				c.produce(topic.Name, p, written, burst)
			}
		}
		written += burst
	}
	if so.Topics[0].Kind != Main {
		write = func() {
			var rs []*kgo.Record
			for _, topic := range so.Topics {
				for p := range int32(partitions) {
					for i := range burst {
						r := record(topic.Name, p, written+i)
						r.Headers = []kgo.RecordHeader{header("pf-v", "1"), header("pf-attempt", "1")}
						rs = append(rs, r)
					}
				}
			}
			c.produceRecords(rs...)
			written += burst
		}
	}
	write()

	var sampling sync.WaitGroup
	ctx, stopSampling := context.WithCancel(t.Context())
	var back []string
	var samples int
	var samplingErr error
	sampling.Go(func() { back, samples, samplingErr = monotone(ctx, c, so.Group) })

	members := []*churner{startChurner(c, o, so, seed), startChurner(c, o, so, seed+1)}
	var dead []*churner
	for round := range rounds {
		write()
		time.Sleep(time.Duration(200+rng.IntN(400)) * time.Millisecond) // churn, not a measurement
		switch n := rng.IntN(len(members)); {
		case len(members) < 2 || len(members) < 5 && rng.IntN(2) == 0:
			members = append(members, startChurner(c, o, so, seed+uint64(round)+2))
		case rng.IntN(4) == 0:
			write() // so that records are in flight or just polled
			time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
			members[n].die()
			dead = append(dead, members[n])
			members = append(members[:n], members[n+1:]...)
			if c.Cluster != nil {
				// Unlike a real broker, kfake expires a member whose first JoinGroup
				// takes longer than a session, and never answers it. The client
				// would be back only 40 s later, too late for the other members.
				time.Sleep(so.Session + 500*time.Millisecond)
			}
		default:
			members[n].leave(t)
			members = append(members[:n], members[n+1:]...)
		}
	}
	want := written * partitions * len(so.Topics)
	limit := time.Now().Add(patience)
	for o.distinct() < want && time.Now().Before(limit) {
		time.Sleep(20 * time.Millisecond)
	}
	if n := o.distinct(); n < want {
		t.Errorf("got %d of %d records done: the others are lost or stuck", n, want)
	}
	// Nobody is left to do again what the last ones cannot commit as they leave.
	for !c.committedTo(so, partitions, int64(written)) && time.Now().Before(limit) {
		time.Sleep(20 * time.Millisecond)
	}
	for _, m := range dead {
		m.wake(t)
	}
	for _, m := range members {
		m.leave(t)
	}
	stopSampling()
	sampling.Wait()

	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.wrong) > 0 {
		t.Errorf("%d times, first: %s", len(o.wrong), strings.Join(o.wrong[:min(5, len(o.wrong))], "; "))
	}
	if len(back) > 0 || samplingErr != nil || samples == 0 {
		t.Errorf("committed offsets went back in %d samples: %v, %v", samples, back, samplingErr)
	}
	for _, topic := range so.Topics {
		if n := testutil.ToFloat64(metrics.rewinds.WithLabelValues(topic.Name)); n != 0 {
			t.Errorf("got %v rewinds, want 0", n)
		}
		for p := range int32(partitions) {
			if got := c.committed(so.Group, topic.Name, p); got != int64(written) {
				t.Errorf("%s/%d: got commit %d, want the end, %d", topic.Name, p, got, written)
			}
		}
	}
	t.Logf("%d records, %d came again, %d died, %d samples", want, o.repeats, len(dead), samples)
}

// committedTo reports whether all partitions are committed up to an offset.
func (c *cluster) committedTo(so SourceOptions, partitions int32, offset int64) bool {
	c.t.Helper()
	for _, topic := range so.Topics {
		for p := range partitions {
			if c.committed(so.Group, topic.Name, p) < offset {
				return false
			}
		}
	}
	return true
}

// A member that the group expels as it leaves is no failure of the churn: another one does
// again what it could not commit.
func TestChurnersMayBeExpelledAsTheyLeave(t *testing.T) {
	t.Parallel()
	for _, refusal := range []*kerr.Error{kerr.UnknownMemberID, kerr.IllegalGeneration} {
		c := newCluster(t, 1, []string{"push"})
		so := SourceOptions{Topics: mainTopic("push"), Group: "g", Linger: time.Millisecond}
		leaves := &churner{source: c.source(so), stop: func() {}}
		c.produce("push", 0, 0, 10)
		done(nextItems(t, leaves.source, 10)...)
		c.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) { // once
			return refuseCommit(r.(*kmsg.OffsetCommitRequest), refusal), nil, true
		})
		leaves.leave(t)
		if c.committedTo(so, 1, 1) {
			t.Fatalf("%v: its last commit was not refused: the test shows nothing", refusal)
		}
		last := startChurner(c, newOwners(), so, 1)
		eventually(t, "another one has done it again", func() bool { return c.committedTo(so, 1, 10) })
		last.leave(t)
	}
}

// churned has the ways in which a group moves partitions.
var churned = []struct{ name, balancer, protocol string }{
	{"cooperative", CooperativeSticky, Classic},
	{"eager", EagerRange, Classic},
	{"server-side", CooperativeSticky, ServerSide},
}

func TestChurn(t *testing.T) {
	for i, way := range churned {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 6, []string{"push"}, kfake.BrokerConfigs(map[string]string{
				"group.consumer.session.timeout.ms": "1500", "group.consumer.heartbeat.interval.ms": "200"}))
			churn(t, c, SourceOptions{Topics: mainTopic("push"), Group: "g", Balancer: way.balancer, Protocol: way.protocol, Session: 1500 * time.Millisecond}, 12, uint64(i+1))
		})
	}
	t.Run("tiers", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, 6, []string{"push.retry.50ms", "push.retry.200ms"})
		topics := append(tier("push.retry.200ms", 200*time.Millisecond), tier("push.retry.50ms", 50*time.Millisecond)...)
		churn(t, c, SourceOptions{Topics: topics, Group: "g", Session: 1500 * time.Millisecond}, 8, 9)
	})
}

func TestRealChurn(t *testing.T) {
	for i, way := range churned {
		t.Run(way.name, func(t *testing.T) {
			topic := ownName(t)
			c := realCluster(t, TopicSpec{Name: topic, Partitions: 6, Replication: 1})
			so := SourceOptions{Topics: mainTopic(topic), Group: topic, Balancer: way.balancer, Protocol: way.protocol, Session: 6 * time.Second}
			if way.protocol == ServerSide {
				so.Session = 45 * time.Second // the broker's setting, which members cannot change
			}
			churn(t, c, so, 10, uint64(i+20))
		})
	}
}
