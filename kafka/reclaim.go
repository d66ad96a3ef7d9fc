package kafka

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// expulsion is what was owned when the coordinator answered that it no longer knows
// this member.
type expulsion struct {
	n          int // its number in membership; 0 = a commit learned of it
	session    int // how many group sessions had begun
	generation generation
	owned      []*assignment
}

// generation names a session of the group, as the coordinator knows it.
type generation struct {
	member string
	number int32
}

// owned returns what an expulsion would take away now. The caller holds mu.
func (s *Source) owned() *expulsion {
	e := &expulsion{session: s.sessions, generation: s.generation(), owned: make([]*assignment, 0, len(s.parts))}
	for _, a := range s.parts {
		e.owned = append(e.owned, a)
	}
	return e
}

// noteExpulsion fences what was owned, and makes the polling goroutine do the rest. It
// must not block, because it is called while the answer is being read. It cannot leave
// the fence to that goroutine: while a revoke drains, the client blocks every poll.
func (s *Source) noteExpulsion(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expulsion = s.owned()
	s.expulsion.n = n
	s.disown(s.expulsion)
	s.interrupt()
	s.signal()
}

// disown fences what an expulsion took away, and forgets that some of it was to begin
// anew. The caller holds mu.
func (s *Source) disown(e *expulsion) {
	s.refused = &e.generation
	for _, a := range e.owned {
		a.tracker.Fence()
		a.anew = false
	}
}

// rejoined reports whether a session has begun since an expulsion. One that began
// before it does not count, although its callback may come after it: the client calls
// onAssigned only when the revoke of the same session is over, which may take longer
// than the coordinator waits. The caller holds mu.
func (s *Source) rejoined(e *expulsion) bool {
	return s.sessions != e.session && s.session != e.generation
}

// expel fences what an expulsion took away. From then on, the member may have a lease
// again.
func (s *Source) expel(e *expulsion) {
	s.committing.Lock()
	defer s.committing.Unlock()
	s.lose(e)
	s.mu.Lock()
	if s.expulsion == e {
		s.expulsion = nil
	}
	s.mu.Unlock()
	s.member.fenced(e.n)
}

// lose fences everything at once, because the coordinator no longer knows this member
// (F10). The client rejoins by itself. Then either onLost or onRevoked takes the
// partitions away, or onAssigned finds in a new session that they are still ours and
// reclaimLost starts them anew. If the client has already rejoined, lose itself does
// what onAssigned would. The caller holds committing.
func (s *Source) lose(e *expulsion) {
	s.mu.Lock()
	if !s.rejoined(e) {
		e.owned = s.owned().owned // also what the refused session has assigned since
	}
	s.disown(e)
	s.mu.Unlock()
	s.log.Warn("the group no longer knows this member: its partitions are lost until it has joined again",
		"member", e.generation.member, "generation", e.generation.number, "partitions", len(e.owned))
	s.noteLost(e.owned)
	s.end(e.owned)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rejoined(e) {
		s.beginAnew(e.owned)
	}
}

// beginAnew notes which of these assignments are lost and still ours, and makes the
// polling goroutine start them anew. The caller holds mu.
func (s *Source) beginAnew(as []*assignment) {
	for _, a := range as {
		if a.lost && s.parts[a.partition] == a {
			a.anew, s.reclaim = true, true
		}
	}
	s.interrupt()
}

// reclaimLost gives fresh assignments to partitions that were lost and are ours again.
// They begin at what the group has committed by now. It runs on the polling goroutine,
// so that no poll is in progress.
func (s *Source) reclaimLost(ctx context.Context) {
	s.mu.Lock()
	var lost []*assignment
	for _, a := range s.parts {
		if a.anew {
			lost = append(lost, a)
		}
	}
	wake := s.wake
	s.reclaim = len(lost) > 0
	s.mu.Unlock()
	if len(lost) == 0 {
		return
	}

	committed, starts, err := s.positions(ctx)
	ready := committed != nil
	for _, a := range lost {
		if _, known := starts[a.partition]; !known {
			ready = false
			err = cmp.Or(err, fmt.Errorf("partition %s/%d: %w", a.partition.Topic, a.partition.ID, kerr.UnknownTopicOrPartition))
		}
	}
	// An error that concerns other partitions does not matter here.
	if !ready {
		s.log.Warn("cannot read committed offsets of lost partitions", "error", err)
		wait(ctx, wake, time.Now().Add(25*recheck))
		return
	}
	var seek offsets
	fresh := make(map[*assignment]*assignment)
	s.mu.Lock()
	for _, a := range lost {
		if s.parts[a.partition] != a {
			continue // taken away or assigned again meanwhile
		}
		fresh[a] = s.newAssignment(a.partition)
		at := kgo.EpochOffset{Epoch: -1, Offset: starts[a.partition]}
		if c, ok := committed[a.partition]; ok {
			at.Offset = fresh[a].begin(c, at.Offset)
		} else {
			fresh[a].from = at.Offset
		}
		seek.set(a.partition, at)
	}
	s.mu.Unlock()
	s.goTo(seek) // also where the client is there: it may hold an error for which it fetches no more

	// Not between the start of a commit and its refusal, which would not concern them.
	s.committing.Lock()
	defer s.committing.Unlock()
	defer s.tellHealth()
	s.mu.Lock()
	defer s.mu.Unlock()
	for a, b := range fresh {
		if s.parts[a.partition] == a && a.anew { // not lost again meanwhile
			s.adopt(b)
			s.log.Info("lost partition restarted", "topic", b.partition.Topic, "partition", b.partition.ID, "committed", b.committed, "member", s.session.member, "generation", s.session.number)
		}
	}
	s.signal()
}

// positions returns the group's committed offsets, nil if they cannot be read, and the
// logs' first offsets. With an error, some of these are missing.
func (s *Source) positions(ctx context.Context) (committed map[push.Partition]stand, starts map[push.Partition]int64, err error) {
	limited, cancel := context.WithTimeout(ctx, s.options.Commit)
	defer cancel()
	resp, err := s.admin.FetchOffsetsForTopics(limited, s.options.Group, s.options.names()...)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading offsets of group %s: %w", s.options.Group, err)
	}
	committed = make(map[push.Partition]stand)
	resp.Each(func(o kadm.OffsetResponse) {
		if o.At >= 0 {
			committed[push.Partition{Topic: o.Topic, ID: o.Partition}] = stand{committed: o.At, unresolved: parseUnresolved(o.Metadata)}
		}
	})
	starts, err = s.starts(ctx)
	return committed, starts, err
}

// starts returns the logs' first offsets. With an error, some are missing.
func (s *Source) starts(ctx context.Context) (map[push.Partition]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.options.Commit)
	defer cancel()
	listed, err := s.admin.ListStartOffsets(ctx, s.options.names()...)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		err = fmt.Errorf("listing start offsets: %w", err)
	}
	return byPartition(listed, listedOffset), err
}

// byPartition returns what of says of each offset that could be listed.
func byPartition[T any](listed kadm.ListedOffsets, of func(kadm.ListedOffset) T) map[push.Partition]T {
	at := make(map[push.Partition]T)
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			at[push.Partition{Topic: o.Topic, ID: o.Partition}] = of(o)
		}
	})
	return at
}

func listedOffset(o kadm.ListedOffset) int64 { return o.Offset }
