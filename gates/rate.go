package gates

import (
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Rate is how fast a route may be sent to; workers and routes may share one. All
// methods may be called at once; they are called under a gate's lock and must not
// block.
type Rate interface {
	// Take takes up to n sends, and returns how many may be made now and under which
	// epoch. If none may, again is when to ask next: not sooner.
	Take(now time.Time, urgent bool, n int) (got int, epoch uint32, again time.Time)
	// Epoch is the one that answers are counted for.
	Epoch() uint32
	// Answered counts answers to sends of that epoch: that the provider takes what is
	// sent, that it is too much, and that the provider fails. Of an earlier epoch only
	// the first are told: the provider counts them all the same.
	Answered(now time.Time, epoch uint32, good, overQuota, failing int)
}

// rated are answers that a rate counts.
type rated struct{ good, overQuota, failing int }

// add counts an answer. What a connection or our own code is to blame for says nothing
// about the rate: it may be this worker's trouble alone.
func (c *rated) add(r *push.Result) {
	switch {
	case r.Pressure == push.OverQuota:
		c.overQuota++
	case r.Pressure == push.Failing:
		c.failing++
	case r.Class == push.Delivered, r.Class == push.Gone, r.Class == push.Refused && r.Panic == nil:
		c.good++
	}
}
