package pipeline

import (
	"context"
	"sync"
	"time"
)

// How a Run ends, after its ctx, and how one partition leaves, from its revoke on:
//
//	0 ──────────────▶ submitAfterStop ─ deadline, time-out ─▶ writeAfterStop ─ commit ─▶ Drain
//	every partition   nothing more is   answers come, or are    last rows
//	leaves: what is   submitted         AMBIGUOUS; their rows
//	not sent is       or intended
//	given back
//
// What is sent after the stop is only what was committed before it was sent, in
// lanes of mode at_most_once: nobody else would. What of that is not sent by
// then goes to the hold topic.

// submitAfterStop is how long after the stop, or its partition's revoke, a
// committed delivery may still be submitted.
func (o *Options) submitAfterStop() time.Duration {
	return o.Drain - o.SendDeadline - o.StatusTimeout - o.CommitTimeout
}

// writeAfterStop is how long after the stop rows and hand-overs are written.
func (o *Options) writeAfterStop() time.Duration { return o.Drain - o.CommitTimeout }

// goesBack reports whether a delivery that is not sent yet is to be given back:
// its partition leaves, and for one that is committed it does so for too long.
// Its answer might come behind the drain, when the next owner has ended its
// intent as UNKNOWN.
func (p *Pipeline) goesBack(d *Delivery, now time.Time) bool {
	if !d.Item.committed {
		return d.leaving()
	}
	since, leaves := d.Item.batch.Tracker.LeavingFor(now)
	return leaves && since >= p.opt.submitAfterStop()
}

// endsLater returns a context that outlives ctx by d. cancel ends it at once.
func endsLater(ctx context.Context, d time.Duration) (later context.Context, cancel func()) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(d, end)
		context.AfterFunc(later, func() { timer.Stop() })
	})
	return later, func() {
		unhook()
		end()
	}
}

// leaveLook is how soon it is noticed that a partition leaves.
const leaveLook = 50 * time.Millisecond

// leaveWith lets every partition leave when ctx ends. What is not sent of one
// that leaves, then or before, is given back at once, and not only when its
// turn would have come: a slow route has minutes of others ahead of it.
func (p *Pipeline) leaveWith(ctx context.Context) {
	ticker := time.NewTicker(leaveLook)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.assigned.leave()
			ended = true
		}
		if p.assigned.leaving() {
			for l := range p.lines {
				p.giveBackLeaving(l)
			}
		}
	}
}

// assigned are the trackers that a pipeline has open items of. The zero value
// is ready; all methods may be called at once.
type assigned struct {
	mu       sync.Mutex
	trackers map[*Tracker]struct{}
	left     bool
}

// add notes the tracker of a batch.
func (a *assigned) add(t *Tracker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		t.Leave()
	}
	if _, known := a.trackers[t]; known {
		return
	}
	for old := range a.trackers { // few: partitions of one member
		if old.over() {
			delete(a.trackers, old)
		}
	}
	if a.trackers == nil {
		a.trackers = make(map[*Tracker]struct{})
	}
	a.trackers[t] = struct{}{}
}

// leave lets all of them leave, and all that are added from now on.
func (a *assigned) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	for t := range a.trackers {
		t.Leave()
	}
}

// leaving reports whether one of them leaves and has items in flight.
func (a *assigned) leaving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.trackers {
		if t.Draining() && !t.settled() {
			return true
		}
	}
	return false
}

// drain waits until every item is done or given back, or ctx ends. Nothing is
// added any more.
func (a *assigned) drain(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.trackers {
		if t.Drain(ctx) != nil {
			return // what is still open is told by whoever drains it at the end
		}
	}
}
