package kafka

import (
	"cmp"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Owned is a partition that a Source owns, for those who watch it.
type Owned struct {
	Partition push.Partition
	Open      int       // records polled and not committed
	Oldest    time.Time // when the oldest record without an end was produced; zero = there is none
}

// Owned returns the partitions that this member owns now, by topic and number.
func (s *Source) Owned() []Owned {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Owned, 0, len(s.parts))
	for p, a := range s.parts {
		if a.ended {
			continue
		}
		records, _ := a.open()
		all = append(all, Owned{Partition: p, Open: records, Oldest: a.oldest()})
	}
	slices.SortFunc(all, func(a, b Owned) int {
		return cmp.Or(cmp.Compare(a.Partition.Topic, b.Partition.Topic), cmp.Compare(a.Partition.ID, b.Partition.ID))
	})
	return all
}

// oldest is when the oldest record without an end was produced: the first one that is
// not done, or else the first that is not handed out. Zero = there is none.
func (a *assignment) oldest() time.Time {
	switch at := a.tracker.Oldest(); {
	case !at.IsZero():
		return at
	case len(a.rest) > 0:
		return a.rest[0].Timestamp.Time()
	case len(a.waiting) > 0:
		return a.waiting[0].timestamp
	}
	return time.Time{}
}
