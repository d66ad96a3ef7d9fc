package pipeline

import (
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// hold ends deliveries that their route does not take before until; zero = for a
// while.
func hold(ds []*Delivery, until time.Time) {
	for _, d := range ds {
		d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Until: until, Reason: string(push.RouteStopped)}
	}
}

// holdForTokens ends ds and everything that waits behind them as held, each until
// its turn may come. It returns those that would expire in the hold topic.
func (p *Pipeline) holdForTokens(l *line, ds []*Delivery, now time.Time) (stay []*Delivery) {
	bearsIt := func(d *Delivery) bool { return d.Expires.IsZero() || !d.Expires.Before(now.Add(shortestHold)) }
	stay, held := split(ds, bearsIt)
	held = append(held, l.waiting.remove(bearsIt)...)
	for i, d := range held {
		d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Until: now.Add(l.gate.Turn(l.charge, i)), Reason: string(push.RetriesWait)}
	}
	p.toSettle.put(held...)
	return stay
}

// sendLater puts deliveries that came back unsent in front of the others of their
// partitions again, without a place in the window, and returns the rest of the
// group in place. Deliveries that this worker may not send any more are given back.
func (p *Pipeline) sendLater(group []*Delivery) []*Delivery {
	var later map[*share][]*Delivery
	stay := group[:0]
	for _, d := range group {
		if d.share == nil || d.abandoned || d.Verdict != push.Undecided || d.Result.Class != push.Unsent {
			stay = append(stay, d)
			continue
		}
		d.ticket.Refund()
		d.ticket = gates.Ticket{}
		if d.inWindow {
			d.inWindow = false
			d.share.line.settled(1)
		}
		if p.goesBack(d, time.Now()) {
			unsent([]*Delivery{d})
			stay = append(stay, d)
			continue
		}
		if later == nil {
			later = make(map[*share][]*Delivery)
		}
		later[d.share] = append(later[d.share], d)
	}
	for s, ds := range later {
		if !s.line.waiting.putBack(s, ds) {
			unsent(ds)
			stay = append(stay, ds...)
		}
	}
	return stay
}

// goesBack reports whether a delivery that is not sent yet must be given back: its
// partition leaves. A committed delivery is given back only once the partition has
// been leaving for too long: its answer might come after the drain, when the next
// owner has ended its intent as UNKNOWN.
func (p *Pipeline) goesBack(d *Delivery, now time.Time) bool {
	since, leaves := d.Item.batch.Tracker.LeavingFor(now)
	return leaves && (!d.Item.committed || since >= p.opt.submitAfterStop())
}

// unsent marks deliveries that this worker will not send. They are left to the next
// owner, but a committed one has no next owner, and goes to the hold topic.
func unsent(ds []*Delivery) {
	for _, d := range ds {
		if d.Item.committed {
			d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Reason: string(push.WorkerStopped)}
		} else {
			d.abandoned = true
		}
	}
}

// giveBack returns deliveries that no provider took.
func (p *Pipeline) giveBack(ds []*Delivery) {
	unsent(ds)
	p.toSettle.put(ds...)
}

// giveBackLeaving returns the deliveries of leaving partitions that wait in a line
// that stands still: their drain does not wait for what is ahead of them.
func (p *Pipeline) giveBackLeaving(l *line) {
	now := time.Now()
	if ds := l.waiting.remove(func(d *Delivery) bool { return p.goesBack(d, now) }); len(ds) > 0 {
		p.giveBack(ds)
	}
}
