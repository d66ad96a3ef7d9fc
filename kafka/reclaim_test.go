package kafka

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// begin begins a group session of generation g, as the client does.
func (s *Source) begin(t *testing.T, g generation, added map[string][]int32) {
	t.Helper()
	s.generation = func() generation { return g }
	s.onAssigned(t.Context(), nil, added)
}

// doneTo admits and finishes the records of a below an offset.
func doneTo(a *assignment, next int64) {
	b := &pipeline.Batch{Tracker: a.tracker, Items: make([]pipeline.Item, 1)}
	b.Items[0].Offset = next - 1
	a.tracker.Admit(b)
	a.tracker.Done(itemsOf(b))
}

// A session begins with the revoke of what it took away, and that may drain for longer
// than the coordinator keeps a member. Then onAssigned comes after the expulsion, but it
// does not mean that we have joined again: others own the partitions by now. The next
// membership may take them away, so it must find nothing in them to commit.
func TestASessionThatIsOverStartsNothingAnew(t *testing.T) {
	one, two := generation{"a", 34}, generation{"a", 35}
	for _, tt := range []struct {
		reason   string
		expelled func(s *Source)
		late     func(s *Source) // after onAssigned
	}{
		{"a commit is refused while the revoke drains", func(s *Source) {
			_, owned, _ := s.moved()
			s.lose(owned)
		}, nil},
		{"a commit is refused as the revoke ends", func(s *Source) {
			_, s.expulsion, _ = s.moved()
		}, func(s *Source) { s.lose(s.expulsion) }},
		{"a heartbeat is refused while the revoke drains", func(s *Source) {
			s.noteExpulsion(1)
			s.expel(s.expulsion)
		}, nil},
		{"a heartbeat is refused, but the client blocks polls until the revoke is over", func(s *Source) {
			s.noteExpulsion(1)
			if moved, _, _ := s.moved(); len(moved) > 0 {
				t.Errorf("got %v to commit, want none before the next membership", moved)
			}
		}, func(s *Source) { s.expel(s.expulsion) }},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			s := newSource(*options(nil), slog.New(slog.DiscardHandler))
			s.drains = t.Context()
			s.begin(t, one, map[string][]int32{"push": {0, 1}})
			for _, a := range s.parts {
				doneTo(a, 5)
			}
			s.generation = func() generation { return two } // its revoke of others drains
			tt.expelled(s)
			s.begin(t, two, map[string][]int32{"push": {2}})
			if tt.late != nil {
				tt.late(s)
			}
			for p, a := range s.parts {
				doneTo(a, 9)
				if !a.lost || !a.ended || a.anew || s.reclaim {
					t.Errorf("partition %d: lost %v, ended %v, begins anew %v", p.ID, a.lost, a.ended, a.anew || s.reclaim)
				}
			}
			if moved, _, _ := s.moved(); len(moved) > 0 {
				t.Errorf("got %v to commit, want none", moved)
			}

			// The client joins as a new member: one partition has another owner now.
			s.generation = func() generation { return generation{"b", 39} }
			s.onRevoked(t.Context(), nil, map[string][]int32{"push": {1}})
			s.begin(t, generation{"b", 39}, nil)
			if len(s.parts) != 2 || !s.reclaim {
				t.Errorf("got %d partitions left, reclaim %v", len(s.parts), s.reclaim)
			}
			for p, a := range s.parts {
				if !a.anew {
					t.Errorf("partition %d is still owned and would never begin anew", p.ID)
				}
			}
		})
	}
}

// While positions are read to start partitions anew, they may be lost again.
func TestWhatIsLostAgainIsNotStartedAnew(t *testing.T) {
	for reason, lost := range map[string]func(s *Source, owned *expulsion){
		"a heartbeat is refused": func(s *Source, _ *expulsion) { s.noteExpulsion(1) },
		"a commit is refused":    func(s *Source, owned *expulsion) { s.lose(owned) },
	} {
		t.Run(reason, func(t *testing.T) {
			c, s := assigned(t)
			s.lose(s.owned())
			s.begin(t, generation{"a", 1}, nil)
			before := s.owned()
			var once sync.Once
			c.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
				once.Do(func() { lost(s, before) })
				return nil, nil, false
			})
			s.reclaimLost(t.Context())
			for _, a := range before.owned {
				if s.parts[a.partition] != a || a.anew {
					t.Errorf("partition %d began anew in a session that was over", a.partition.ID)
				}
			}
			if e := s.expulsion; e != nil {
				s.expel(e)
			}
			s.begin(t, generation{"b", 2}, nil)
			s.reclaimLost(t.Context())
			for _, a := range before.owned {
				if s.parts[a.partition] == a {
					t.Errorf("partition %d did not begin anew in the next session", a.partition.ID)
				}
			}
		})
	}
}

// The client holds back commits while it joins. What was collected before an expulsion
// must not be sent by the member that it has become meanwhile, which the group would
// take for the owner.
func TestACommitOfAnEarlierMembershipIsNotSent(t *testing.T) {
	c := newCluster(t, 1, []string{"push"})
	s := c.unjoined(SourceOptions{Topics: mainTopic("push"), Reread: 1})
	s.begin(t, generation{"a", 1}, map[string][]int32{"push": {0}})
	doneTo(s.parts[push.Partition{Topic: "push"}], 5)
	_, owned, _ := s.moved()
	partition := kmsg.NewOffsetCommitRequestTopicPartition()
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.Partitions = "push", append(topic.Partitions, partition)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.MemberID, req.Generation, req.Topics = "a", 2, append(req.Topics, topic)
	if err := s.beforeCommit(req, owned); err != nil || owned.generation != (generation{"a", 2}) || req.Topics[0].Partitions[0].Metadata == nil {
		t.Errorf("the same member, in its next generation: %v, from %v", err, owned.generation)
	}
	s.noteExpulsion(1)
	req.MemberID, req.Generation = "b", 3
	if err := s.beforeCommit(req, owned); !errors.Is(err, errNotOurs) {
		t.Errorf("committed by another member: %v", err)
	}
	s.onLost(t.Context(), nil, map[string][]int32{"push": {0}})
	if err := s.beforeCommit(req, owned); !errors.Is(err, errNotOurs) {
		t.Errorf("commit of a partition that left: %v", err)
	}
}

// A missing answer does not mean that nothing is committed: the log would be read from
// its start.
func TestPositionsAreNotGuessed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, []string{"push"})
	c.produce("push", 0, 0, 10)
	c.commitAt("g", "push", 7)
	s := c.source(SourceOptions{Topics: mainTopic("push")})
	p := push.Partition{Topic: "push"}
	committed, starts, err := s.positions(t.Context())
	if err != nil || committed[p].committed != 7 || starts[p] != 0 {
		t.Errorf("got commits %v, starts %v, error %v", committed, starts, err)
	}
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	if _, _, err := s.positions(t.Context()); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("the group's offsets are refused: %v", err)
	}
	refused.Remove()
	refused = c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "push", Err: kerr.TopicAuthorizationFailed, Count: -1})
	if _, _, err := s.positions(t.Context()); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("the log's start is refused: %v", err)
	}
	refused.Remove()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.positions(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("the context has ended: %v", err)
	}
}

// An error of a topic counts for all its partitions, at once, but not for assignments
// that have ended, nor for other topics.
func TestATopicsErrorIsItsPartitions(t *testing.T) {
	const short, long = "push.retry.30s", "push.retry.5m"
	s := newSource(*options(func(o *SourceOptions) { o.Topics = append(tier(short, 30*time.Second), tier(long, 5*time.Minute)...) }), slog.New(slog.DiscardHandler))
	s.onAssigned(t.Context(), nil, map[string][]int32{short: {0, 1, 2}, long: {0}})
	s.parts[push.Partition{Topic: short, ID: 2}].end()
	_, stopped, _ := s.take(kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: short, Partitions: []kgo.FetchPartition{{Partition: -1, Err: kerr.UnknownTopicOrPartition}}}}}}, time.Now())
	for p, named := range map[push.Partition]bool{{Topic: short}: true, {Topic: short, ID: 1}: true, {Topic: short, ID: 2}: false, {Topic: long}: false} {
		if err := s.parts[p].trouble(); (err != nil) != named || named && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%v: got %v, want it named: %v", p, err, named)
		}
	}
	if len(stopped) > 0 {
		t.Errorf("stopped: %v", stopped)
	}
	s.tellHealth() // without a Health function
}

// A watermark below the committed offset commits nothing and is counted: it is a bug,
// or the log was cut short. It is neither where records are read again.
func TestACommittedOffsetNeverGoesBack(t *testing.T) {
	p := push.Partition{Topic: "push"}
	for _, tt := range []struct {
		reason            string
		committed, reread int64
		moved             bool
		rewinds           float64
	}{
		{"nothing was committed", -1, 0, true, 0},
		{"a little less was", 4, 0, true, 0},
		{"as much was", 5, 0, false, 0},
		{"more was", 6, 0, false, 1},
		{"more was, and this is read again", 6, 6, false, 0},
	} {
		s := newSource(*options(nil), slog.New(slog.DiscardHandler))
		s.onAssigned(t.Context(), nil, map[string][]int32{"push": {0}})
		a := s.parts[p]
		a.committed, a.reread = tt.committed, tt.reread
		b := &pipeline.Batch{Tracker: a.tracker, Items: make([]pipeline.Item, 1)}
		b.Items[0].Offset = 4
		a.tracker.Admit(b)
		a.tracker.Done(itemsOf(b))
		moved, owned, _ := s.moved()
		if at, ok := moved["push"][0]; ok != tt.moved || ok && at.Offset != 5 {
			t.Errorf("%s: got %v, %v; want %v", tt.reason, at, ok, tt.moved)
		}
		if n := testutil.ToFloat64(a.topic.metrics.rewinds); n != tt.rewinds || len(owned.owned) != 1 {
			t.Errorf("%s: got %v rewinds, want %v (%d owned)", tt.reason, n, tt.rewinds, len(owned.owned))
		}
	}
}
