package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// onAssigned gives each new partition a fresh tracker. It is called at the
// start of every group session, before anything new is fetched.
func (s *Source) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	defer s.tellHealth() // deferred first: it runs without the lock
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	s.session = s.generation()
	refused := s.refused != nil && *s.refused == s.session
	for topic, ids := range added {
		for _, id := range ids {
			a := s.newAssignment(push.Partition{Topic: topic, ID: id})
			s.adopt(a)
			a.topic.metrics.moveAssigned.Inc()
			if refused {
				a.tracker.Fence()
				a.lost, a.ended = true, true
			}
		}
	}
	// When a commit learned that the coordinator no longer knows us, everything
	// was fenced. If the client has rejoined since and kept a partition, it
	// calls no callback for it: the tracker has ended, but the partition is ours.
	// But not if this is the session that has been refused: its revoke took so long.
	if !refused {
		s.beginAnew(slices.Collect(maps.Values(s.parts)))
	}
	s.showAssigned()
	s.signal()
	s.interrupt()
}

// showAssigned sets the gauges of owned partitions. The caller holds mu.
func (s *Source) showAssigned() {
	owned := make(map[*topic]int)
	for _, a := range s.parts {
		owned[a.topic]++
	}
	for _, t := range s.topics {
		t.metrics.assigned.Set(float64(owned[t]))
	}
}

func (s *Source) newAssignment(p push.Partition) *assignment {
	return newAssignment(&s.options, s.topics[p.Topic], p.ID, s.member.lease, time.Now())
}

// adopt makes a the assignment of its partition. The caller holds mu.
func (s *Source) adopt(a *assignment) {
	former := s.retired[a.partition]
	if old := s.parts[a.partition]; old != nil {
		old.tracker.Fence()
		former = old
	}
	if former != nil {
		a.after(former, time.Now().Add(s.options.Drain))
		delete(s.retired, a.partition)
	}
	s.parts[a.partition] = a
}

// startAt receives the committed offsets of newly assigned partitions, and returns
// where reading begins: there, or a little before if configured. It waits for
// Kafka's answers until ctx ends with the group session, because a guessed start
// would skip records.
func (s *Source) startAt(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	var stands map[push.Partition]stand
	var starts map[push.Partition]int64
	if s.options.Reread > 0 {
		var err error
		for stands, starts, err = s.positions(ctx); err != nil; stands, starts, err = s.positions(ctx) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			s.log.Warn("cannot read start offsets of assigned partitions", "error", err)
			wait(ctx, nil, time.Now().Add(25*recheck))
		}
	}
	s.beginAt(offsets, stands, starts)
	placeStarts(ctx, s.admin, offsets, s.options.Commit)
	s.noteStarts(offsets)
	placeRest(offsets) // after noteStarts: 0 is where reading begins, not where the log does
	return offsets, nil
}

// noteStarts remembers the first offsets of partitions without a committed offset.
func (s *Source) noteStarts(offsets map[string]map[int32]kgo.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, partitions := range offsets {
		for id, o := range partitions {
			a := s.parts[push.Partition{Topic: topic, ID: id}]
			if at := o.EpochOffset().Offset; at >= 0 && a != nil && a.committed < 0 && a.from < 0 {
				a.from = at
			}
		}
	}
}

// beginAt begins the assignments of partitions that have a committed offset, and
// moves the start back where records must be read again.
func (s *Source) beginAt(offsets map[string]map[int32]kgo.Offset, stands map[push.Partition]stand, starts map[push.Partition]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, partitions := range offsets {
		for id, o := range partitions {
			p, at := push.Partition{Topic: topic, ID: id}, o.EpochOffset().Offset
			a := s.parts[p]
			if a == nil || at < 0 {
				continue
			}
			from := stand{committed: at, unresolved: -1}
			if known, ok := stands[p]; ok && known.committed == at {
				from = known
			}
			if start := a.begin(from, starts[p]); start < at {
				partitions[id] = kgo.NewOffset().At(start)
			}
		}
	}
}

// onRevoked gives partitions back: drain, commit, fence, in that order. It
// returns within the drain budget + the commit's, which are less than the
// rebalance time-out.
func (s *Source) onRevoked(_ context.Context, _ *kgo.Client, revoked map[string][]int32) {
	leaving := s.leaving(revoked)
	if len(leaving) == 0 {
		return // called at the end of every session, even if nothing is revoked
	}
	for _, a := range leaving {
		a.topic.metrics.moveRevoked.Inc()
	}
	s.end(leaving)

	drain, cancel := context.WithTimeout(s.drains, s.options.Drain)
	defer cancel()
	var drains sync.WaitGroup
	for _, a := range leaving {
		drains.Go(func() {
			if err := a.tracker.Drain(drain); err != nil {
				a.topic.metrics.drainMissed.Add(float64(a.tracker.Open()))
				s.log.Warn("partition given back with work in flight", "topic", a.partition.Topic, "partition", a.partition.ID, "open", a.tracker.Open(), "error", err)
			}
		})
	}
	drains.Wait()

	if err := s.Commit(s.drains); err != nil {
		s.log.Warn("final commit of revoked partitions failed: finished records will be redelivered and confirmed", "error", err)
	}
	s.fence(leaving)
}

// onLost ends partitions that may already have another owner: it fences them
// without a commit (F8). Work in flight goes on and writes its status.
func (s *Source) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	s.member.end()
	leaving := s.leaving(lost)
	s.noteLost(leaving)
	s.end(leaving)
	s.fence(leaving)
}

// noteLost counts the lost partitions, each once.
func (s *Source) noteLost(as []*assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range as {
		if !a.lost {
			a.lost = true
			a.topic.metrics.moveLost.Inc()
		}
	}
}

// leaving returns the assignments of the partitions.
func (s *Source) leaving(partitions map[string][]int32) []*assignment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var as []*assignment
	for topic, ids := range partitions {
		for _, id := range ids {
			if a := s.parts[push.Partition{Topic: topic, ID: id}]; a != nil {
				as = append(as, a)
			}
		}
	}
	return as
}

// end makes assignments take and hand out nothing more, and waits for a batch that
// is being cut: after that, nothing is admitted to their trackers.
func (s *Source) end(as []*assignment) {
	for _, a := range as {
		a.cutting.Lock()
		s.mu.Lock()
		a.end()
		s.mu.Unlock()
		a.cutting.Unlock()
	}
}

// fence ends assignments for good. It waits for a commit in progress; no later
// commit contains them.
func (s *Source) fence(as []*assignment) {
	s.committing.Lock()
	defer s.committing.Unlock()
	defer s.tellHealth()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range as {
		a.tracker.Fence()
		if s.parts[a.partition] == a {
			delete(s.parts, a.partition)
			a.topic.metrics.forget(a.partition.ID)
		}
		if !idle(a.tracker) || a.waitsForFormer(time.Now()) {
			s.retired[a.partition] = a
		}
	}
	s.showAssigned()
	s.signal()
}

var _ pipeline.Source = (*Source)(nil)
