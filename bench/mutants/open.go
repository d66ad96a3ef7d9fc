//go:build unix

package mutants

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/push"
)

// checkExposed: at no time more pushes are accepted without a durable row than
// the windows of all workers hold. It looks at every moment of a run, so a
// worker need not die in the worst of them. In lanes that send at most once the
// intent is durable before.
func (w *world) checkExposed() []Finding {
	if w.once() {
		return nil
	}
	workers := 0
	for _, p := range w.Processes() {
		if strings.HasPrefix(p.Name, "worker") {
			workers++
		}
	}
	// A lane and its retries have windows of their own.
	bound := workers * 2 * killBound
	most, at := peak(w.sends.all(), w.store.rowAfter)
	if most <= bound {
		return nil
	}
	return []Finding{{Invariant: Exposed, Text: fmt.Sprintf("at %s %d pushes were accepted without a durable row; the windows of %d workers hold %d",
		at.Format(time.StampMilli), most, workers, bound)}}
}

// peak is how many pushes were accepted and had no row yet, at the moment when
// they were the most. rowAfter is when the first row that tells of a push became
// durable; zero = never.
func peak(sends []invariants.Send, rowAfter func(p invariants.Pair, accepted time.Time) time.Time) (most int, at time.Time) {
	type step struct {
		at    time.Time
		opens int
	}
	var steps []step
	for _, s := range sends {
		if !s.Accepted || s.Undone {
			continue
		}
		steps = append(steps, step{s.At, 1})
		if row := rowAfter(s.Pair, s.At); !row.IsZero() {
			steps = append(steps, step{row, -1})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	open := 0
	for _, s := range steps {
		if open += s.opens; open > most {
			most, at = open, s.at
		}
	}
	return most, at
}

// rowAfter is when the first row of a push became durable that was written
// after it was accepted; at once, if it was DELIVERED before. Zero = there is
// none.
func (s *Store) rowAfter(p invariants.Pair, accepted time.Time) (first time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, at := range s.durable[p.ID] {
		if k.device != p.Device {
			continue
		}
		if at.Before(accepted) {
			if k.state != push.StateDelivered {
				continue
			}
			at = accepted
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}
