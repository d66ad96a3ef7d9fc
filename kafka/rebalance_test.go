package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// commitLog records every offset commit that reaches the broker.
type commitLog struct {
	mu      sync.Mutex
	highest map[string]int64
	rewinds []string
}

func (c *cluster) watchCommits() *commitLog {
	l := &commitLog{highest: make(map[string]int64)}
	c.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, t := range req.(*kmsg.OffsetCommitRequest).Topics {
			for _, p := range t.Partitions {
				k := fmt.Sprint(p.Partition)
				if p.Offset < l.highest[k] {
					l.rewinds = append(l.rewinds, fmt.Sprintf("partition %s from %d to %d", k, l.highest[k], p.Offset))
				}
				l.highest[k] = max(l.highest[k], p.Offset)
			}
		}
		return nil, nil, false
	})
	return l
}

// ledger counts the items that workers finished.
type ledger struct {
	mu   sync.Mutex
	done map[string]int
}

func (l *ledger) add(items []*pipeline.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		l.done[it.ID]++
	}
}

func (l *ledger) distinct() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}

// worker is a small pipeline: batches are in flight for a while, their halves end out of
// order, and items of a draining partition are abandoned unless they were sent.
type worker struct {
	source *Source
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

func startWorker(c *cluster, l *ledger, so SourceOptions, seed uint64) *worker {
	w := &worker{source: c.source(so)}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	rng := rand.New(rand.NewPCG(seed, 1))
	w.wg.Go(func() {
		for {
			b, err := w.source.Next(ctx)
			if err != nil {
				return
			}
			flight := time.Duration(rng.IntN(20)) * time.Millisecond
			w.wg.Go(func() {
				time.Sleep(flight) // the provider's time
				items := itemsOf(b)
				half := len(items) / 2
				for _, part := range [][]*pipeline.Item{items[half:], items[:half]} {
					if flight > 15*time.Millisecond && b.Tracker.Draining() {
						b.Tracker.Abandon(part)
						continue
					}
					l.add(part)
					b.Tracker.Done(part)
				}
			})
		}
	})
	w.wg.Go(func() {
		for ctx.Err() == nil {
			wait(ctx, nil, time.Now().Add(20*time.Millisecond))
			_ = w.source.Commit(context.WithoutCancel(ctx)) // the next one tries again
		}
	})
	return w
}

func (w *worker) leave(t *testing.T) {
	t.Helper()
	w.stop()
	w.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.source.Close(ctx); err != nil {
		t.Errorf("leaving: %v", err)
	}
}

func TestMembersComeAndGoAndNothingIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, comeAndGoPartitions, []string{"push"})
	commits := c.watchCommits()
	comeAndGo(t, c, SourceOptions{Topics: mainTopic("push"), Group: "g"})
	commits.mu.Lock()
	defer commits.mu.Unlock()
	if len(commits.rewinds) > 0 {
		t.Errorf("offsets went back: %v", commits.rewinds)
	}
}

const comeAndGoPartitions = 6

// comeAndGo lets three members share a topic while it is written. One leaves under load,
// another one at the end. Every record must be done, and every partition committed to
// its end.
func comeAndGo(t *testing.T, c *cluster, so SourceOptions) {
	t.Helper()
	const partitions, each = comeAndGoPartitions, 400
	l := &ledger{done: make(map[string]int)}
	m := NewMetrics(nil)
	so.BatchRecords, so.Linger, so.Drain, so.Metrics = 20, 2*time.Millisecond, 10*time.Second, m
	c.produce(so.Topics[0].Name, 0, 0, 1) // connect before the members do

	var producing sync.WaitGroup
	producing.Go(func() {
		for i := 1; i <= each; i += 20 {
			for p := range int32(partitions) {
				c.produce(so.Topics[0].Name, p, i, 20)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	a := startWorker(c, l, so, 1)
	eventually(t, "the first member works", func() bool { return l.distinct() > 50 })
	b := startWorker(c, l, so, 2)
	eventually(t, "the second member has partitions", func() bool { return len(b.source.State()) > 0 })
	d := startWorker(c, l, so, 3)
	eventually(t, "the third member has partitions", func() bool { return len(d.source.State()) > 0 })
	a.leave(t)
	producing.Wait()
	eventually(t, "everything is done", func() bool { return l.distinct() == partitions*each+1 })
	b.leave(t)
	eventually(t, "the last member has all partitions", func() bool { return len(d.source.State()) == partitions })
	d.leave(t)

	for p := range int32(partitions) {
		want := int64(each)
		if p == 0 {
			want++
		}
		if got := c.committed(so.Group, so.Topics[0].Name, p); got != want {
			t.Errorf("partition %d: got commit %d, want the end, %d", p, got, want)
		}
	}
	if n := testutil.ToFloat64(m.rewinds.WithLabelValues(so.Topics[0].Name)); n != 0 {
		t.Errorf("got %v rewinds, want 0", n)
	}
}

func TestARevokeDrainsThenCommitsThenFences(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, []string{"push"})
	so := SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Drain: patience}
	a := c.source(so)
	c.produce("push", 0, 0, 10)
	c.produce("push", 1, 0, 10)
	trackers := make(map[int32]*pipeline.Batch)
	for _, b := range nextItems(t, a, 20) {
		trackers[b.Partition.ID] = b
	}
	b := c.source(so)
	var leaving *pipeline.Batch
	eventually(t, "one partition is asked back", func() bool {
		for _, batch := range trackers {
			if batch.Tracker.Draining() {
				leaving = batch
			}
		}
		return leaving != nil
	})
	if _, ours := leaving.Tracker.Watermark(); leaving.Tracker.Open() != len(leaving.Items) || ours {
		t.Error("got a watermark of a partition with nothing done")
	}
	if n := len(b.State()); n != 0 {
		t.Errorf("got %d partitions for the new member before the old one drained", n)
	}
	done(leaving) // the work in flight ends while the partition drains

	eventually(t, "the new member has the partition", func() bool { return len(b.State()) == 1 })
	if got := c.committed("g", "push", leaving.Partition.ID); got != int64(len(leaving.Items)) {
		t.Errorf("got commit %d, want %d: what ended during the drain", got, len(leaving.Items))
	}
	if _, ours := leaving.Tracker.Watermark(); ours {
		t.Error("the tracker of a revoked partition still returns a watermark")
	}
	c.produce("push", leaving.Partition.ID, 10, 1)
	if next := nextItems(t, b, 1); next[0].Items[0].Offset != 10 {
		t.Errorf("got start %d for the new owner, want 10", next[0].Items[0].Offset)
	}
	for _, batch := range trackers {
		if batch != leaving {
			done(batch)
		}
	}
}

func TestALatePartOfARevokedPartitionMovesNothing(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	commits := c.watchCommits()
	so := SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Drain: mortal}
	a := c.source(so)
	c.produce("push", 0, 0, 20)
	bs := nextItems(t, a, 20)
	if err := a.Close(t.Context()); err != nil { // the drain budget ends with everything in flight
		t.Fatal(err)
	}
	b := c.source(so)
	again := nextItems(t, b, 20)
	again[0].Tracker.Done(itemsOf(again[0]))
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	done(bs...)
	if err := a.Commit(t.Context()); err != nil {
		t.Errorf("Commit of a closed source: got %v, want nil", err)
	}
	if got := c.committed("g", "push", 0); got != int64(len(again[0].Items)) {
		t.Errorf("got commit %d, want the new owner's %d", got, len(again[0].Items))
	}
	commits.mu.Lock()
	defer commits.mu.Unlock()
	if len(commits.rewinds) > 0 {
		t.Errorf("offsets went back: %v", commits.rewinds)
	}
}

// answerCommits makes the broker answer the next n commits with a code.
func (c *cluster) answerCommits(n int, code *kerr.Error) {
	c.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if n--; n < 0 {
			return nil, nil, false
		}
		req := r.(*kmsg.OffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
}

func TestWhatACommitErrorMeans(t *testing.T) {
	tests := []struct {
		code *kerr.Error
		lost bool
		why  string
	}{
		{kerr.NotCoordinator, false, "the coordinator moved: ask the new one"},
		{kerr.CoordinatorLoadInProgress, false, "it is starting: ask again"},
		{kerr.CoordinatorNotAvailable, false, "it is away: ask again"},
		{kerr.RebalanceInProgress, false, "the group is moving: ask again"},
		{kerr.IllegalGeneration, true, "the group went on without us: another may own our partitions"},
		{kerr.UnknownMemberID, true, "the group does not know us: another may own our partitions"},
	}
	for _, test := range tests {
		t.Run(test.code.Message, func(t *testing.T) {
			c := newCluster(t, 1, []string{"push"})
			m := NewMetrics(nil)
			s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Metrics: m})
			c.produce("push", 0, 0, 10)
			bs := nextItems(t, s, 10)
			done(bs...)
			answers := 2
			if test.lost {
				answers = 1
			}
			c.answerCommits(answers, test.code)
			err := s.Commit(t.Context())
			if !test.lost {
				if err != nil {
					t.Fatalf("%s, but Commit gave up: %v", test.why, err)
				}
				if got := c.committed("g", "push", 0); got != 10 {
					t.Errorf("got commit %d, want 10", got)
				}
				return
			}
			if !errors.Is(err, test.code) {
				t.Fatalf("%s, but Commit said %v", test.why, err)
			}
			if n := testutil.ToFloat64(m.commitsFailed.WithLabelValues("g")); n != 1 {
				t.Errorf("got %v failed commits, want 1", n)
			}
			if _, ours := bs[0].Tracker.Watermark(); ours {
				t.Errorf("%s, but its tracker is not fenced", test.why)
			}
			// The partition does not stall silently: it starts anew from the committed
			// offset, with a fresh tracker and confirm reads.
			again := nextItems(t, s, 10)
			if again[0].Tracker == bs[0].Tracker || again[0].Items[0].Offset != 0 || !again[0].Items[0].Confirm {
				t.Errorf("came back at offset %d, same tracker %v, confirm %v", again[0].Items[0].Offset,
					again[0].Tracker == bs[0].Tracker, again[0].Items[0].Confirm)
			}
			done(again...)
			if err := s.Commit(t.Context()); err != nil {
				t.Fatalf("committing the new assignment: %v", err)
			}
			if got := c.committed("g", "push", 0); got != 10 {
				t.Errorf("got commit %d, want 10", got)
			}
		})
	}
}

func TestPartitionsAreLostWhenTheSessionEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, []string{"push"})
	m := NewMetrics(nil)
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond, Metrics: m})
	c.produce("push", 0, 0, 10)
	bs := nextItems(t, s, 10)
	c.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = kerr.UnknownMemberID.Code
		return resp, nil, true
	})
	eventually(t, "the partition is lost", func() bool {
		return testutil.ToFloat64(m.rebalances.WithLabelValues("push", "lost")) == 1
	})
	done(bs...) // finishes after the loss: its status is written, its offset is not committed
	if _, ours := bs[0].Tracker.Watermark(); ours {
		t.Error("the tracker of a lost partition is not fenced")
	}
	again := nextItems(t, s, 10)
	if again[0].Tracker == bs[0].Tracker || again[0].Items[0].Offset != 0 {
		t.Errorf("the partition restarted at offset %d, with the old tracker: %v", again[0].Items[0].Offset, again[0].Tracker == bs[0].Tracker)
	}
}

func TestWhatComesBackQuicklyGetsAFreshTracker(t *testing.T) {
	s := newSource(SourceOptions{Topics: mainTopic("push")}.withDefaults(), slog.New(slog.DiscardHandler))
	given := map[string][]int32{"push": {3}}
	s.onAssigned(t.Context(), nil, given)
	first := s.parts[push.Partition{Topic: "push", ID: 3}]
	b := &pipeline.Batch{Items: make([]pipeline.Item, 1)}
	first.tracker.Admit(b)
	s.onLost(t.Context(), nil, given)
	s.onAssigned(t.Context(), nil, given)
	second := s.parts[push.Partition{Topic: "push", ID: 3}]
	if second == first || second.tracker == first.tracker {
		t.Fatal("the same partition got its old tracker back")
	}
	if !second.waitsForFormer(time.Now()) {
		t.Error("the new assignment does not wait for the old one's work in flight")
	}
	s.onLost(t.Context(), nil, given)
	s.onAssigned(t.Context(), nil, given)
	third := s.parts[push.Partition{Topic: "push", ID: 3}]
	if !third.waitsForFormer(time.Now()) {
		t.Error("the one after it does not wait for the first one's work in flight")
	}
	first.tracker.Done(itemsOf(b))
	if third.waitsForFormer(time.Now()) {
		t.Error("waits although all work in flight has ended")
	}
	if moved, _, _ := s.moved(); len(moved) != 0 {
		t.Errorf("a late end in the old tracker returned %v to commit", moved)
	}
	if second.tracker.Open() != 0 {
		t.Error("a late end in the old tracker reached the new one")
	}
}

func TestOffsetsThatCannotBeReadAreAskedForAgain(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	asked := 0
	c.ControlKey(int16(kmsg.OffsetFetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if asked++; asked > 3 {
			return nil, nil, false
		}
		req := r.(*kmsg.OffsetFetchRequest)
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		resp.ErrorCode = kerr.UnknownServerError.Code
		for _, g := range req.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group, rg.ErrorCode = g.Group, kerr.UnknownServerError.Code
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	s := c.source(SourceOptions{Topics: mainTopic("push"), BatchRecords: 10, Linger: time.Millisecond})
	c.produce("push", 0, 0, 10)
	b := nextItems(t, s, 10)[0]
	done(b)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := c.committed("g", "push", 0); got != 10 {
		t.Errorf("got commit %d, want 10", got)
	}
}

func TestARefusedCommitOfAnEarlierSessionStartsAnewAtOnce(t *testing.T) {
	s := newSource(SourceOptions{Topics: mainTopic("push")}.withDefaults(), slog.New(slog.DiscardHandler))
	s.begin(t, generation{"a", 1}, map[string][]int32{"push": {0}})
	_, owned, _ := s.moved()
	s.begin(t, generation{"b", 2}, nil) // the client rejoined before the refusal was read
	s.lose(owned)
	if !s.reclaim {
		t.Error("the partition is never started again")
	}
	if _, ours := s.parts[push.Partition{Topic: "push"}].tracker.Watermark(); ours || !s.parts[push.Partition{Topic: "push"}].ended {
		t.Error("the partition is not fenced")
	}
}
