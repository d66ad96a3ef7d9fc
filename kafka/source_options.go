package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Kind says what the records of a topic are.
type Kind uint8

// The kinds of topics that a Source reads.
const (
	// Main is a lane's own topic: producers write it, and its headers are ignored.
	Main Kind = iota
	// Retry is a retry or deferral tier: a record is due the tier's delay after its
	// timestamp.
	Retry
	// Hold is a hold topic: a record is due at its not-before.
	Hold
)

// The balancers of a group. All members must use the same one.
const (
	// CooperativeSticky, the default, moves as few partitions as possible, and only
	// those pause meanwhile.
	CooperativeSticky = "cooperative-sticky"
	// EagerRange revokes all partitions at every rebalance (eager).
	EagerRange = "range"
)

// The group protocols.
const (
	// Classic, the default, is supported by all brokers: members do the balancing.
	Classic = "classic"
	// ServerSide is the protocol of KIP-848: the broker does the balancing, and sets the
	// heartbeat interval. It is experimental. It needs brokers of version 4.3 or later
	// whose session time-out (group.consumer.session.timeout.ms) is at least ours; with
	// older brokers, Classic is used.
	ServerSide = "consumer"
)

// SourceTopic is one topic that a Source reads.
type SourceTopic struct {
	Name  string
	Kind  Kind
	Delay time.Duration // of a Retry topic: no record is handed out sooner than this after its timestamp
}

// SourceOptions are the options of a Source. A zero value means the default unless
// stated otherwise.
type SourceOptions struct {
	// Topics are the topics to read: one Main topic, or any number of Retry and Hold
	// topics. Required.
	Topics []SourceTopic
	Group  string // required; one group per Source, so that each spreads evenly
	// Admitted heeds HeaderAdmitted: gateways limit senders.
	Admitted bool

	Balancer string // CooperativeSticky or EagerRange
	Protocol string // Classic or ServerSide
	// JoinWithin spreads the joins of a starting fleet: the Source joins after a random
	// part of it; 0 = at once.
	JoinWithin time.Duration

	BatchRecords int // most records of a batch; 10,000 = the sends in flight to a provider at once
	BatchBytes   int // most bytes of a batch; 8 MiB
	// Linger is how long a batch that is not full waits for more records; 20 ms. Where they come in
	// numbers the wait begins with the first one. Where they come one by one they wait before they
	// are polled, so that a record that comes alone is handed out at once: see pace.
	Linger      time.Duration
	OpenBatches int // full batches that fit in a partition's window; 4, so W = 40,000 records
	// OpenRecords is the most open records of all partitions together; 10 W. Retry and
	// Hold topics share it evenly, and so do the partitions of each: those with long
	// waits take no room from the others.
	OpenRecords int
	// OpenBytes is the most bytes of open records, as they are kept, of all partitions
	// together; 4 windows of BatchBytes x OpenBatches. Nothing is polled beyond it, but
	// one poll may exceed it by what the client has buffered at most.
	OpenBytes int
	Confirms  int // records after an assignment that a dead owner may have sent; W
	// Reread makes each assignment hand out records below the committed offset again,
	// marked as such. It is for lanes that commit intents before they send, and for
	// their retry, deferral and hold topics: a dead owner may not have resolved the intents from
	// the first one without a result at its last commit. Reread is the number of offsets
	// to go back where the commit does not name that intent; 0 = nothing is read again.
	Reread int

	Session   time.Duration // group session time-out; 10 s
	Rebalance time.Duration // group rebalance time-out; 60 s
	Drain     time.Duration // how long a revoked partition may finish its work; 20 s, less than Rebalance
	Commit    time.Duration // how long one commit may take, with its repeats; 5 s
	// Expiries has trackers count what waits by its expiry: see pipeline.Tracker.Sooner.
	Expiries bool
	// Look is how often the brokers are asked for the logs' ends: 5 s, which is also the
	// most. If it is less, they are asked before there is a partition too, so that End
	// knows how many there are.
	Look time.Duration

	// Yields, if set, is asked before each poll whether no partition is to be polled now,
	// because others go first. It must be quick and must not call the Source.
	Yields func() bool

	// Tell, if set, is called before each commit with what became of the records that it
	// passes, by partition. It returns when that is durable, or when the commit is not to
	// wait any longer, and keeps nothing of the slice. Calls come one after another. Tell
	// must not call the Source.
	Tell func(ctx context.Context, ranges []pipeline.Range)

	// Health, if set, is called when a partition's trouble changes: with a
	// *PartitionError if it cannot go on, with another error if it cannot be read for
	// now, and with nil when that is over or the partition has left. Calls come one after
	// another. Health must not call the Source.
	Health  func(push.Partition, error)
	Metrics *Metrics // nil = not exposed

	// refetching is how long spoilt data is fetched again before its partition
	// stops; 5 s. Only tests change it.
	refetching time.Duration
}

// window returns W: the most records of a partition between its committed offset and
// the newest one polled.
func (o *SourceOptions) window() int { return o.OpenBatches * o.BatchRecords }

// fetchBytes returns how many bytes one fetch brings of a partition.
func (o *SourceOptions) fetchBytes() int { return min(o.BatchBytes, maxFetch) }

// patience returns how much longer than its tier's delay a record waits in place for its
// own not-before: less than the smallest tier's delay, since going round through that
// tier would take as long.
func (o *SourceOptions) patience() time.Duration {
	var least time.Duration
	for _, t := range o.Topics {
		if t.Kind == Retry && (least == 0 || t.Delay < least) {
			least = t.Delay
		}
	}
	return least
}

// groupOptions returns the client options for joining the group, and for wanting nothing
// of it any more once draining is set.
func (o *SourceOptions) groupOptions(draining *atomic.Bool) []kgo.Opt {
	balancer := kgo.CooperativeStickyBalancer()
	if o.Balancer == EagerRange {
		balancer = kgo.RangeBalancer()
	}
	if o.Protocol != ServerSide { // there, the client knows only its own balancers
		balancer = leavingBalancer{balancer, draining}
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(o.Group), kgo.Balancers(balancer),
		kgo.SessionTimeout(o.Session), kgo.HeartbeatInterval(min(3*time.Second, o.Session/4)), kgo.RebalanceTimeout(o.Rebalance),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}
	if o.Protocol == ServerSide {
		opts = append(opts, kgo.ServerSideBalancer())
	}
	return opts
}

// names returns the topics' names.
func (o *SourceOptions) names() []string {
	names := make([]string, len(o.Topics))
	for i, t := range o.Topics {
		names[i] = t.Name
	}
	return names
}

func (o SourceOptions) withDefaults() SourceOptions {
	o.BatchRecords = cmp.Or(o.BatchRecords, 10_000)
	o.BatchBytes = cmp.Or(o.BatchBytes, 8<<20)
	o.OpenBatches = cmp.Or(o.OpenBatches, 4)
	o.OpenRecords = cmp.Or(o.OpenRecords, 10*o.window())
	o.OpenBytes = cmp.Or(o.OpenBytes, 4*o.OpenBatches*o.BatchBytes)
	o.Confirms = cmp.Or(o.Confirms, o.window())
	o.Linger = cmp.Or(o.Linger, 20*time.Millisecond)
	o.Session = cmp.Or(o.Session, 10*time.Second)
	o.Rebalance = cmp.Or(o.Rebalance, time.Minute)
	o.Drain = cmp.Or(o.Drain, 20*time.Second)
	o.Commit = cmp.Or(o.Commit, 5*time.Second)
	o.Look = min(cmp.Or(o.Look, lookEvery), lookEvery)
	o.refetching = cmp.Or(o.refetching, passing)
	o.Balancer = cmp.Or(o.Balancer, CooperativeSticky)
	o.Protocol = cmp.Or(o.Protocol, Classic)
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	// Topics take turns in this order, so the shortest delay comes first.
	o.Topics = slices.SortedFunc(slices.Values(o.Topics), func(a, b SourceTopic) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Delay, b.Delay), cmp.Compare(a.Name, b.Name))
	})
	return o
}

func (o *SourceOptions) check() error {
	switch {
	case len(o.Topics) == 0 || o.Group == "":
		return errors.New("a source needs a topic and a group")
	case o.BatchRecords < 1, o.BatchBytes < 1, o.OpenBatches < 1, o.Confirms < 0, o.Reread < 0, o.Linger < 0, o.JoinWithin < 0:
		return errors.New("batch records, batch bytes and open batches must be positive, times not negative")
	case o.OpenRecords < o.BatchRecords:
		return fmt.Errorf("open records %d are less than one batch of %d: nothing would ever be polled", o.OpenRecords, o.BatchRecords)
	case o.OpenBytes < o.BatchBytes:
		return fmt.Errorf("open bytes %d are less than one batch of %d", o.OpenBytes, o.BatchBytes)
	case o.Drain+o.Commit >= o.Rebalance:
		return fmt.Errorf("drain %v + commit %v must be under the rebalance time-out %v", o.Drain, o.Commit, o.Rebalance)
	}
	if o.Balancer != CooperativeSticky && o.Balancer != EagerRange {
		return fmt.Errorf("balancer %q is neither %s nor %s", o.Balancer, CooperativeSticky, EagerRange)
	}
	if o.Protocol != Classic && o.Protocol != ServerSide {
		return fmt.Errorf("protocol %q is neither %s nor %s", o.Protocol, Classic, ServerSide)
	}
	seen := make(map[string]bool)
	for _, t := range o.Topics {
		switch {
		case t.Name == "" || seen[t.Name]:
			return fmt.Errorf("topic %q has no name or occurs twice", t.Name)
		case t.Kind > Hold:
			return fmt.Errorf("topic %s is of an unknown kind", t.Name)
		case t.Kind == Main && len(o.Topics) > 1:
			return fmt.Errorf("topic %s is a lane's own topic: it needs a source and a group of its own, so that it spreads evenly", t.Name)
		case t.Delay < 0, t.Delay > 0 && t.Kind != Retry, t.Delay == 0 && t.Kind == Retry:
			return fmt.Errorf("topic %s: retry topics have a delay, other topics have none", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}
