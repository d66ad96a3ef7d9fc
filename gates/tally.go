package gates

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

const (
	// tallySlice is how finely answers are counted over time, and tallySlices how many
	// such slices are kept: the last minute, give or take a slice.
	tallySlice  = 10 * time.Second
	tallySlices = 6
	// mostKinds bounds the kinds that a slice tells apart. Beyond them a reason is
	// OtherReason, once for each class.
	mostKinds = 16
)

// OtherReason stands for the reasons beyond those that are told apart.
const OtherReason = "other"

// Answered is how often answers were of a kind.
type Answered struct {
	Class  push.Class
	Reason string // the provider's word, or ours
	N      int64
}

// tallied is how often answers were of each kind. Most neighbours are alike.
type tallied struct {
	kinds []Answered
	last  int // index of the last hit
}

// add adds some of a kind. Beyond most kinds the reason is OtherReason.
func (t *tallied) add(some Answered, most int) {
	if !t.find(some) && len(t.kinds) >= most {
		some.Reason = OtherReason
		t.find(some)
	}
	if t.last < 0 {
		some.Reason = strings.Clone(some.Reason) // it may be a part of something large
		t.last, t.kinds = len(t.kinds), append(t.kinds, Answered{Class: some.Class, Reason: some.Reason})
	}
	t.kinds[t.last].N += some.N
}

// find sets last to a kind's index, or to -1.
func (t *tallied) find(some Answered) bool {
	if t.last < 0 || t.last >= len(t.kinds) || !t.kinds[t.last].like(&some) {
		t.last = slices.IndexFunc(t.kinds, func(a Answered) bool { return a.like(&some) })
	}
	return t.last >= 0
}

func (a *Answered) like(b *Answered) bool { return a.Class == b.Class && a.Reason == b.Reason }

// tally counts a route's answers of the last minute. The zero value is empty.
type tally struct {
	start  time.Time // of the newest slice; zero = nothing counted yet
	newest int
	slices [tallySlices]tallied
}

// move forgets what is older than the last minute. A clock that goes back forgets
// nothing.
func (t *tally) move(now time.Time) {
	if t.start.IsZero() {
		t.start = now
	}
	passed := max(now.Sub(t.start)/tallySlice, 0)
	for range min(passed, tallySlices) {
		t.newest = (t.newest + 1) % tallySlices
		of := &t.slices[t.newest]
		of.kinds, of.last = of.kinds[:0], 0
	}
	t.start = t.start.Add(passed * tallySlice)
}

// add adds some answers to those of the time that move was last called with.
func (t *tally) add(some Answered) {
	if some.N > 0 {
		t.slices[t.newest].add(some, mostKinds)
	}
}

// sum is what was counted, most of it first.
func (t *tally) sum(now time.Time) []Answered {
	t.move(now)
	var all tallied
	for i := range t.slices {
		for _, k := range t.slices[i].kinds {
			all.add(k, math.MaxInt)
		}
	}
	slices.SortFunc(all.kinds, func(a, b Answered) int {
		return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Reason, b.Reason))
	})
	return all.kinds
}
