package kafka

import (
	"errors"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/watch"
)

// PartitionState is the state of one partition of a Source.
type PartitionState struct {
	Partition push.Partition
	Committed int64 // next offset to read after a restart; -1 = not known yet
	End       int64 // the log's end (high watermark) as last seen; -1 = not known yet
	Open      int   // records that are polled but not committed
	Err       error // a *PartitionError if it cannot go on; another error if it cannot be read for now
}

// State returns the states of all partitions that this Source owns, in no order.
func (s *Source) State() []PartitionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]PartitionState, 0, len(s.parts))
	for _, a := range s.parts {
		open, _ := a.open()
		states = append(states, PartitionState{Partition: a.partition, Committed: a.committed, End: a.high, Open: open, Err: a.trouble()})
	}
	return states
}

// Standstill returns all partitions that have a lag, in no order, including those that
// have just moved. The logs' ends that it knows are at most a few seconds old.
func (s *Source) Standstill(now time.Time) []watch.Standstill {
	s.mu.Lock()
	defer s.mu.Unlock()
	var still []watch.Standstill
	for _, a := range s.parts {
		a.observe(now)
		if lag := a.behind(); lag > 0 {
			still = append(still, watch.Standstill{Partition: a.partition, Lag: lag, Since: a.movedAt, Waiting: a.waitingFor(now, s.crowded, s.yielding)})
		}
	}
	return still
}

// observe notes whether the watermark has moved, or has nothing to move for.
func (a *assignment) observe(now time.Time) {
	if mark, _ := a.tracker.Watermark(); mark != a.mark || a.behind() <= 0 {
		a.mark, a.movedAt = mark, now
	}
}

// behind returns how many records lie between the watermark and the log's end; -1 = not
// known.
func (a *assignment) behind() int64 {
	lag := a.lag()
	if mark, _ := a.tracker.Watermark(); lag > 0 && mark >= 0 {
		return max(0, min(lag, a.high-mark))
	}
	return lag
}

// waitingFor returns why the watermark does not move. crowded says that no partition is
// polled, for lack of room, and yielding that none is because other lanes go first.
func (a *assignment) waitingFor(now time.Time, crowded, yielding bool) watch.Waiting {
	_, early := a.early(now)
	switch {
	case a.stopped != nil:
		return watch.WaitingStopped
	case a.waitsForFormer(now):
		return watch.WaitingOwner
	case early && a.tracker.Open() == 0:
		return watch.WaitingDue
	case yielding && a.tracker.Open()+len(a.rest)+len(a.waiting) == 0:
		return watch.WaitingLane
	case crowded && a.tracker.Open()+len(a.rest)+len(a.waiting) == 0:
		return watch.WaitingTurn
	case a.paused, crowded:
		return watch.WaitingRoom
	case now.Sub(a.answeredAt) > silence, a.failed(now):
		return watch.WaitingKafka
	}
	return watch.WaitingNothing
}

// tellHealth calls Health for each partition whose trouble changed since the last call:
// it is new, another one, or over because the partition recovered or left.
func (s *Source) tellHealth() {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.mu.Lock()
	troubled := make(map[push.Partition]error)
	for p, a := range s.parts {
		if err := a.trouble(); err != nil {
			troubled[p] = err
		}
	}
	s.mu.Unlock()
	tell := s.options.Health
	if tell == nil {
		tell = func(push.Partition, error) {}
	}
	for p, err := range troubled {
		if was := s.told[p]; was == nil || was.Error() != err.Error() {
			tell(p, err)
			s.logTrouble(p, err)
		}
	}
	for p := range s.told {
		if troubled[p] == nil {
			tell(p, nil)
			s.log.Info("partition recovered or released", "topic", p.Topic, "partition", p.ID)
		}
	}
	s.told = troubled
}

func (s *Source) logTrouble(p push.Partition, err error) {
	if e, stopped := errors.AsType[*PartitionError](err); stopped {
		s.log.Error("partition stopped", "topic", p.Topic, "partition", p.ID, "offset", e.Offset, "gap", e.Gap, "error", e.Err)
		return
	}
	s.log.Warn("partition cannot be read for now", "topic", p.Topic, "partition", p.ID, "error", err)
}
