package pipeline

import (
	"context"
	"maps"
	"sync"
	"time"
)

// How Run ends after its ctx has ended, and how one partition leaves after its
// revoke:
//
//	0 ──────────────▶ submitAfterStop ─ deadline, time-out ─▶ writeAfterStop ─ commit ─▶ Drain
//	every partition   nothing more is   answers come, or are    last rows
//	leaves: what is   submitted         AMBIGUOUS; their rows
//	not sent is       or intended
//	given back
//
// After the stop only the committed deliveries of at_most_once lanes are sent,
// because no other worker would send them. Those that are not sent by
// submitAfterStop go to the hold topic.

// submitAfterStop is how long after the stop, or its partition's revoke, a
// committed delivery may still be submitted.
func (o *Options) submitAfterStop() time.Duration {
	return o.Drain - o.SendDeadline - o.StatusTimeout - o.CommitTimeout
}

// writeAfterStop is how long after the stop rows and hand-overs are written.
func (o *Options) writeAfterStop() time.Duration { return o.Drain - o.CommitTimeout }

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

// leaveLook is the interval at which leaving partitions are looked for.
const leaveLook = 50 * time.Millisecond

// leaveWith makes every partition leave when ctx ends. When a partition leaves,
// then or earlier, its unsent deliveries are given back at once instead of at
// their turn: on a slow route, minutes of other deliveries may be ahead of them.
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

// assigned are the trackers whose items a pipeline has open. The zero value is
// ready to use; all methods are safe for concurrent use.
type assigned struct {
	mu       sync.Mutex // guards the rest
	trackers map[*Tracker]struct{}
	left     bool
}

// add adds the tracker of a batch.
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

// leave makes all trackers leave, including those that are added later.
func (a *assigned) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	for t := range a.trackers {
		t.Leave()
	}
}

// leaving reports whether a tracker leaves and still has items in flight.
func (a *assigned) leaving() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.trackers {
		if t.Draining() && t.inFlight() {
			return true
		}
	}
	return false
}

// drain makes all trackers leave and waits until every item is done or given back, or
// ctx ends. Nothing may be added any more.
func (a *assigned) drain(ctx context.Context) {
	a.leave()
	// Not under the lock, or who asks what leaves would wait with the first tracker.
	for t := range a.all() {
		if t.Drain(ctx) != nil {
			return // the source reports what is still open when it drains at the end
		}
	}
}

// all returns the trackers of this moment.
func (a *assigned) all() map[*Tracker]struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.trackers)
}
