package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// Kind says what the records of a topic are.
type Kind uint8

// The kinds of topics that a Source reads.
const (
	// Main is a lane's own topic: producers write it, its headers mean nothing.
	Main Kind = iota
	// Retry is a retry tier: a record is due its tier's delay after its
	// timestamp.
	Retry
	// Hold is a hold topic: a record is due at its not-before.
	Hold
)

// The balancers of a group. All members must have the same one.
const (
	// CooperativeSticky moves as few partitions as possible, and only those
	// that move stop meanwhile. It is the default.
	CooperativeSticky = "cooperative-sticky"
	// EagerRange gives back everything at every rebalance (eager).
	EagerRange = "range"
)

// The group protocols.
const (
	// Classic is the protocol of all brokers: members balance themselves. It is
	// the default.
	Classic = "classic"
	// ServerSide is that of KIP-848: the broker balances, and says how often it
	// wants to hear of a member. It is experimental, needs brokers of 4.3 or
	// later with a session time-out (group.consumer.session.timeout.ms) of at
	// least ours, and older ones get Classic.
	ServerSide = "consumer"
)

// SourceTopic is one topic that a Source reads.
type SourceTopic struct {
	Name  string
	Kind  Kind
	Delay time.Duration // of a Retry topic: no record is handed out sooner than this after its timestamp
}

// SourceOptions are the topics and the numbers of one Source. A zero value
// stands for the default unless said otherwise.
type SourceOptions struct {
	// Topics is what to read: one Main topic, or any number of Retry and Hold
	// topics. Required.
	Topics []SourceTopic
	Group  string // required; one group per Source, so that each spreads evenly

	Balancer string // CooperativeSticky or EagerRange
	Protocol string // Classic or ServerSide
	// JoinWithin spreads the start of a fleet: the group is joined after a
	// random part of it; 0 = at once.
	JoinWithin time.Duration

	BatchRecords int           // most records of a batch; 10,000 = what is in flight to a provider at once
	BatchBytes   int           // most bytes of a batch; 8 MiB
	Linger       time.Duration // how long a batch that is not full waits for more; 20 ms
	OpenBatches  int           // batches of a partition between watermark and newest; 4, so W = 40,000 records
	// OpenRecords is the same in records over all partitions; 10 W. The
	// partitions of Retry and Hold topics share it evenly, first by topic: those
	// that wait for a long time take nothing from the others.
	OpenRecords int
	// OpenBytes is the same in bytes, as they are kept: nothing is polled beyond
	// it; 4 windows of BatchBytes x OpenBatches. One poll may exceed it, by what
	// the client has at most.
	OpenBytes int
	Confirms  int // records after an assignment that a dead owner may have sent; W
	// Reread says that records below the committed offset are handed out again
	// at each assignment, marked as such: in lanes that commit intents before
	// they send, what a dead owner had no time to resolve, from the first intent
	// on that had no result at its last commit. In retry and hold topics too. Its
	// number is how many offsets it is where a commit does not tell; 0 = none.
	Reread int

	Session   time.Duration // group session time-out; 10 s
	Rebalance time.Duration // group rebalance time-out; 60 s
	Drain     time.Duration // how long a revoked partition may finish its work; 20 s, less than Rebalance
	Commit    time.Duration // how long one commit may take, repeats included; 5 s

	// Health, if set, is told what is wrong with a partition: a *PartitionError
	// when it cannot go on, another error when it cannot be read for now, and nil
	// when that is over or the partition is no longer here. Calls come one after
	// another, and must not call the Source.
	Health  func(push.Partition, error)
	Metrics *Metrics // nil = not exposed

	// refetching is how long spoilt data is fetched again before its partition
	// stops; 5 s. Only tests change it.
	refetching time.Duration
}

// window is W: the most records of a partition between its watermark and the
// newest one polled.
func (o *SourceOptions) window() int { return o.OpenBatches * o.BatchRecords }

// patience is how much longer than its tier's delay a record waits in place
// for its own not-before: less than the smallest tier, because going round
// through that one would take as long.
func (o *SourceOptions) patience() time.Duration {
	var least time.Duration
	for _, t := range o.Topics {
		if t.Kind == Retry && (least == 0 || t.Delay < least) {
			least = t.Delay
		}
	}
	return least
}

// groupOptions are how the client joins the group.
func (o *SourceOptions) groupOptions() []kgo.Opt {
	balancer := kgo.CooperativeStickyBalancer()
	if o.Balancer == EagerRange {
		balancer = kgo.RangeBalancer()
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

// names are the topics' names, joined for logs and errors.
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
	o.refetching = cmp.Or(o.refetching, passing)
	o.Balancer = cmp.Or(o.Balancer, CooperativeSticky)
	o.Protocol = cmp.Or(o.Protocol, Classic)
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	// The shortest delay first: that is the order in which topics take turns.
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
			return fmt.Errorf("topic %q is unnamed or there twice", t.Name)
		case t.Kind > Hold:
			return fmt.Errorf("topic %s is of no known kind", t.Name)
		case t.Kind == Main && len(o.Topics) > 1:
			return fmt.Errorf("topic %s is a lane's own: it needs a source and a group of its own, so that it spreads evenly", t.Name)
		case t.Delay < 0, t.Delay > 0 && t.Kind != Retry, t.Delay == 0 && t.Kind == Retry:
			return fmt.Errorf("topic %s: a retry topic has a delay, and only a retry topic", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}
