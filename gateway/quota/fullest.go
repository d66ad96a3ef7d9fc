package quota

import (
	"cmp"
	"slices"
	"strings"
)

// Fullness is how full the window of a sender was since it was last told.
type Fullness struct {
	Sender string
	Policy
	Greatest int   // of messages, at most Limit: of the window that is, and of those that ended since
	Now      int   // in the window that is, at most Limit
	Refused  int64 // messages that this gateway refused because of this window
}

// Fullest tells how full the windows were of the senders that asked this gateway for
// something since the last call: at most n, the fullest first, and how many more there are.
// What others have used is in it as they told last.
func (q *Quotas) Fullest(n int) (list []Fullness, more int) {
	q.mu.Lock()
	senders := q.limited[:len(q.limited):len(q.limited)]
	q.mu.Unlock()
	for _, s := range senders {
		list = s.fullness(list)
	}
	slices.SortFunc(list, func(x, y Fullness) int {
		return cmp.Or(cmp.Compare(y.share(), x.share()), cmp.Compare(y.Refused, x.Refused), strings.Compare(x.Sender, y.Sender), cmp.Compare(x.Window, y.Window))
	})
	if more = len(list) - n; more > 0 {
		return list[:n], more
	}
	return list, 0
}

func (f *Fullness) share() float64 { return float64(f.Greatest) / float64(f.Limit) }

// fullness appends how full the windows were, if anybody asked.
func (s *Sender) fullness(list []Fullness) []Fullness {
	now := s.quotas.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.counts.admitted + s.counts.refused
	if asked == s.told || !s.clock.set {
		return list
	}
	s.told = asked
	_, latest := s.clock.span(now, s.away)
	for i := range s.windows {
		w := &s.windows[i]
		if latest >= w.end {
			s.roll(w, latest)
		}
		used := w.has()
		list = append(list, Fullness{Sender: s.name, Policy: w.Policy, Greatest: max(w.greatest, used), Now: used, Refused: w.refused})
		w.greatest, w.refused = used, 0
	}
	return list
}

// refuse counts messages that were refused, by the window that has the least left. The
// caller holds mu.
func (s *Sender) refuse(n int) {
	nearest := &s.windows[0]
	for i := range s.windows {
		if w := &s.windows[i]; w.Limit-w.has() <= nearest.Limit-nearest.has() {
			nearest = w
		}
	}
	nearest.refused += int64(n)
}
