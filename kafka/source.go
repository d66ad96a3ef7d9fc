package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
)

// PartitionError says that a partition cannot go on without an operator: its
// offset is out of range, a record's headers cannot be read, a batch is too
// large to unpack. Nothing of it is skipped; the other partitions go on.
type PartitionError struct {
	Partition push.Partition
	Offset    int64 // where it stands; -1 = not known
	// Gap is how many offsets lie between there and what the log still has: they
	// were deleted, or the log was cut short.
	Gap int64
	Err error
}

func (e *PartitionError) Error() string {
	if e.Gap > 0 {
		return fmt.Sprintf("partition %s/%d stopped at offset %d, %d offsets are missing from its log: %v", e.Partition.Topic, e.Partition.ID, e.Offset, e.Gap, e.Err)
	}
	return fmt.Sprintf("partition %s/%d stopped at offset %d: %v", e.Partition.Topic, e.Partition.ID, e.Offset, e.Err)
}

func (e *PartitionError) Unwrap() error { return e.Err }

// ErrClosed is what Next returns after Close.
var ErrClosed = errors.New("source is closed")

// recheck is how soon a tracker is asked again whether it has moved, while
// something waits for it to move.
const recheck = 10 * time.Millisecond

// Source hands out batches of its topics as one member of a group, and commits
// what is done. It implements pipeline.Source. All methods are safe for concurrent
// use; batches of one partition come in order if only one goroutine calls Next.
//
// One goroutine polls (fetch), the callers of Next cut and decode batches, and the
// client calls the rebalance callbacks. They share parts, under mu.
//
// Locks nest in this order: committing, assignment.cutting, telling,
// membership.mu, mu, and innermost those of a Tracker and of unpacking, which call nothing.
type Source struct {
	options SourceOptions
	topics  map[string]*topic // by name; not changed
	client  *kgo.Client
	closing closing
	waker   waker // of fetch alone
	admin   *kadm.Client
	member  *membership
	decode  decoder
	// leaderEpoch returns the epoch of the leader from which a partition is read; -1 = it is
	// not known. It does not block.
	leaderEpoch func(push.Partition) int32
	// generation returns the client's present generation. It does not block.
	generation func() generation
	// unpacking bounds the memory of the batches that the client unpacks.
	unpacking *unpacking
	log       *slog.Logger
	metrics   *groupMetrics

	draining  atomic.Bool // the group is to give this member nothing more
	stopFetch context.CancelFunc
	fetching  sync.WaitGroup
	// Heartbeats go on until the group is left: what drains needs its lease.
	stopBeats context.CancelFunc
	// asking are look and beat. A request of theirs that waits for a connection ends with
	// the client only.
	asking sync.WaitGroup
	// drains ends when the ctx of Close does: then no revoke waits for its drain.
	drains     context.Context
	stopDrains context.CancelFunc

	// committing is held during every commit and while trackers are fenced, so
	// that nothing is committed after the fence (F2 to F5).
	committing sync.Mutex
	byID       bool // the last commit that was answered named topics by id; guarded by committing

	// telling is held while Health is called, so that its last call has the
	// current state.
	telling sync.Mutex
	told    map[push.Partition]error // guarded by telling

	mu      sync.Mutex
	parts   map[push.Partition]*assignment
	retired map[push.Partition]*assignment // the last one of a partition that left with work in flight, its own or a former one's
	wake    chan struct{}                  // closed and replaced, by signal, when something changed
	turn    int                            // topic.turn of the topic served last
	// interrupt ends the current poll, so that fetch checks the state again.
	interrupt context.CancelFunc
	sessions  int         // group sessions begun
	session   generation  // the last of them
	refused   *generation // the last one that the coordinator refused; nil = none
	reclaim   bool        // some assignments are to begin anew
	expulsion *expulsion  // what the group took away and has not been ended yet
	typical   int         // typical size of a record in bytes, estimated from recent ones
	crowded   bool        // nothing is polled, because too much is open
	yielding  bool        // nothing is polled, because other lanes go first
	closed    bool
}

// NewSource opens a source that has not joined its group yet: Join does that. Close
// closes it in either case.
func NewSource(o Options, so SourceOptions) (*Source, error) {
	so = so.withDefaults()
	if err := so.check(); err != nil {
		return nil, fmt.Errorf("kafka source: %w", err)
	}
	s := newSource(so, o.log())
	s.drains, s.stopDrains = context.WithCancel(context.Background())
	o.Dial = observed(o.dialer(), s.member)
	unpacking, err := newUnpacking()
	if err != nil {
		return nil, fmt.Errorf("kafka source: %w", err)
	}
	s.unpacking = unpacking
	s.closing = newClosing()
	client, err := o.newClient(append(so.groupOptions(&s.draining), s.closing.option(),
		// The first start reads the log from its beginning. Later, an offset that
		// the log no longer has stops the partition: nothing is skipped (F12).
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		// What the client holds beyond our windows: one fetch per broker, and the
		// unpacked records of all of them.
		kgo.FetchMaxBytes(maxFetch), kgo.FetchMaxPartitionBytes(int32(so.fetchBytes())),
		kgo.WithDecompressor(unpacking), kgo.WithHooks(unpacking),
		kgo.FetchMaxWait(fetchWait),
		// Also report the errors that the client itself retries: they may last.
		kgo.KeepRetryableFetchErrors(),
		// The longest time until added partitions are noticed.
		kgo.MetadataMaxAge(30*time.Second),
		kgo.OnPartitionsAssigned(s.onAssigned), kgo.OnPartitionsRevoked(s.onRevoked), kgo.OnPartitionsLost(s.onLost),
		kgo.AdjustFetchOffsetsFn(s.startAt),
	)...)
	if err != nil {
		return nil, fmt.Errorf("kafka source: %w", err)
	}
	s.client, s.admin, s.waker.client = client, kadm.NewClient(client), client
	s.leaderEpoch = func(p push.Partition) int32 {
		if _, epoch, err := client.PartitionLeader(p.Topic, p.ID); err == nil {
			return epoch
		}
		return -1
	}
	s.generation = func() generation {
		member, number := client.GroupMetadata()
		return generation{member, number}
	}
	return s, nil
}

// Join joins the group and starts polling; it returns at once. Kafka need not be
// reachable yet: the client keeps trying and logs that. Join is called once, and
// neither during nor after Close.
func (s *Source) Join() {
	ctx, stop := context.WithCancel(context.Background())
	s.stopFetch = stop
	s.asking.Go(func() { s.look(ctx) })
	beats, stopBeats := context.WithCancel(context.Background())
	s.stopBeats = stopBeats
	s.asking.Go(func() { s.beat(beats) }) // brokers may know the classic protocol only
	s.fetching.Go(func() {
		if within := s.options.JoinWithin; within > 0 {
			wait(ctx, nil, time.Now().Add(rand.N(within)))
		}
		if ctx.Err() == nil {
			s.client.AddConsumeTopics(s.options.names()...)
			s.fetch(ctx)
		}
	})
}

// newSource makes a Source that has no client yet.
func newSource(so SourceOptions, log *slog.Logger) *Source {
	s := &Source{
		decode: decode.Message, options: so, topics: make(map[string]*topic), metrics: so.Metrics.forGroup(so.Group),
		log:   log.With("topics", so.names(), "group", so.Group),
		parts: make(map[push.Partition]*assignment), retired: make(map[push.Partition]*assignment),
		unpacking: new(unpacking), wake: make(chan struct{}), stopFetch: func() {}, stopBeats: func() {}, interrupt: func() {}, typical: 4 * leastTypical,
	}
	s.generation = func() generation { return generation{number: -1} }
	s.leaderEpoch = func(push.Partition) int32 { return -1 }
	s.member = newMembership(so.Session, so.Rebalance, s.noteExpulsion)
	for i, t := range so.Topics {
		s.topics[t.Name] = &topic{SourceTopic: t, turn: i, patience: so.patience(), metrics: so.Metrics.forTopic(t.Name), admitted: so.Admitted}
	}
	return s
}

// Next implements pipeline.Source.
func (s *Source) Next(ctx context.Context) (*pipeline.Batch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, ErrClosed
		}
		a, again := s.pick(time.Now())
		wake := s.wake
		s.mu.Unlock()
		if a != nil {
			if b := s.cut(a); b != nil {
				return b, nil
			}
			continue
		}
		wait(ctx, wake, again)
	}
}

// wait returns when ctx ends, wake is closed or until has come; zero = no such time.
func wait(ctx context.Context, wake <-chan struct{}, until time.Time) {
	var alarm <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(time.Until(until))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-ctx.Done():
	case <-wake:
	case <-alarm:
	}
}

// pick chooses the next partition that has a batch, round robin, and marks it
// busy. If there is none, it says when to ask again. The caller holds mu.
func (s *Source) pick(now time.Time) (best *assignment, again time.Time) {
	for _, a := range s.parts {
		ok, at := a.ready(now)
		if !ok {
			again = sooner(again, at)
			continue
		}
		if best == nil || s.before(a, best) {
			best = a
		}
	}
	if best != nil {
		best.busy = true
		s.turn, best.topic.served = best.topic.turn, best.partition.ID
	}
	return best, again
}

// before reports whether a's turn comes before b's. Topics take turns, so that a
// busy tier with a long delay cannot block a short one; within a topic, partitions
// take turns.
func (s *Source) before(a, b *assignment) bool {
	if a.topic != b.topic {
		return before(a.topic.turn, b.topic.turn, s.turn)
	}
	return before(a.partition.ID, b.partition.ID, a.topic.served)
}

// before reports whether a comes before b on a circle that starts after last.
func before[N int | int32](a, b, last N) bool {
	if (a > last) != (b > last) {
		return a > last
	}
	return a < b
}

// sooner returns the earlier of two times, where zero means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// cut makes the partition's next batch, decoded and admitted to its tracker. It
// returns nil if the partition has ended, the batch cannot be decoded, or the
// tracker took nothing.
func (s *Source) cut(a *assignment) *pipeline.Batch {
	a.cutting.Lock()
	defer a.cutting.Unlock()
	now := time.Now()

	s.mu.Lock()
	records, bytes := a.head(now)
	items, ended := a.rest, a.ended
	s.mu.Unlock()

	// Only this goroutine takes from the head while busy is set, and nothing
	// ends the assignment while cutting is held.
	var taken int
	var b *pipeline.Batch
	if !ended {
		b = &pipeline.Batch{Partition: a.partition, Items: items, Tracker: a.tracker, Retry: a.topic.delayed()}
		if len(items) > 0 {
			records, bytes = nil, 0
		} else {
			items = a.topic.items(records)
			b.Items = items
			if err := s.decode.contained(b); err != nil {
				s.stop(a, items[0].Offset, err)
				return nil
			}
			a.markReread(items)
		}
		taken = a.tracker.Admit(b)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	a.busy = false
	if ended {
		return nil
	}
	a.drop(len(records), bytes)
	a.rest = nil
	if taken < len(items) {
		a.rest, a.restAt = items[taken:], now.Add(recheck)
		b.Items = items[:taken:taken]
	}
	if taken == 0 {
		return nil
	}
	a.out(taken, batchBytes(b))
	a.topic.metrics.consumed.Add(float64(taken))
	return b
}

// stop stops a partition whose batch makes the decoder fail: our decoder is at
// fault, and the records that it cannot read stay in Kafka. The caller holds
// cutting.
func (s *Source) stop(a *assignment, at int64, err error) {
	e := &PartitionError{Partition: a.partition, Offset: at, Err: err}
	s.mu.Lock()
	a.busy, a.stopped = false, e
	a.waiting, a.waitingBytes, a.settled = nil, 0, 0
	s.signal()
	s.mu.Unlock()
	if p, ok := errors.AsType[*push.PanicError](err); ok {
		s.log.Error("decoder panicked", "what", p.What, "stack", string(p.Stack))
	}
	s.tellStopped(e)
}

// signal wakes all goroutines that wait for a change. The caller holds mu.
func (s *Source) signal() {
	close(s.wake)
	s.wake = make(chan struct{})
}
