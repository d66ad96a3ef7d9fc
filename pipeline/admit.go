package pipeline

import (
	"context"
	"time"
)

// admitPoll is the longest that a stopped route goes without looking whether
// its deliveries have expired or their partitions leave.
const admitPoll = 50 * time.Millisecond

// submit hands deliveries to the route's provider as its gate and its budgets
// let them through. While it is stopped for a moment they wait here, in their
// places of the window; when it is stopped for long they go to the hold topic.
func (p *Pipeline) submit(ctx context.Context, r *route, ds []*Delivery) {
	over := func(time.Time) {}
	defer func() { over(time.Now()) }()
	for len(ds) > 0 {
		var err error
		ds, err = p.confirmed(ctx, p.due(ds, time.Now()))
		switch {
		case err == nil:
		case ctx.Err() == nil:
			continue // without those that leave
		default:
			p.giveBack(ds)
			return
		}
		now := time.Now()
		n, again, why := p.admit(now, r, ds)
		if n > 0 {
			over(now)
			if taken, err := r.provider.Submit(ctx, ds[:n], p.back); err != nil {
				p.Gates.Answered(now, ds[taken:n])
				p.giveBack(ds[taken:])
				return
			}
			ds = ds[n:]
			continue
		}
		switch {
		case len(ds) == 0:
			return
		case r.gate.Hold(now):
			hold(ds)
			p.answered.put(ds...)
			return
		case ctx.Err() != nil, r.waiting.isClosed():
			p.giveBack(ds)
			return
		}
		over(now)
		over = p.stalls.Declare(now, why, r.String())
		select {
		case <-time.After(min(max(again.Sub(now), time.Millisecond), admitPoll)):
		case <-ctx.Done():
		}
	}
}

// Names of stalls.
const (
	stallRoute   = "route_paused"
	stallRetries = "retry_budget"
	stallDead    = "dead_letter_budget"
)

// admit says how many of ds, from the first on, may be sent now, and if none,
// when to ask again and what it waits for. Retries pay from the route's retry
// budget, and a last try, which may end in the DLQ, from its limiter: so an
// outage is not amplified, and does not empty a topic into the DLQ.
func (p *Pipeline) admit(now time.Time, r *route, ds []*Delivery) (n int, again time.Time, why string) {
	retries, last := p.charges(ds)
	paid, paidAgain := r.gate.Retries.Take(now, retries)
	paidLast, lastAgain := r.gate.DeadLetters.Take(now, last)
	able := p.affordable(ds, paid, paidLast)
	n, again = r.gate.Admit(now, ds[:able])
	usedRetries, usedLast := p.charges(ds[:n])
	r.gate.Retries.Return(paid - usedRetries)
	r.gate.DeadLetters.Return(paidLast - usedLast)
	for _, d := range ds[:n] {
		d.gate, d.lastTry, d.Deadline = r.gate, p.lastTry(d), now.Add(p.SendDeadline)
	}
	switch {
	case n > 0 || able > 0:
		why = stallRoute
	case paid < retries && !paidAgain.IsZero():
		again, why = paidAgain, stallRetries
	default:
		again, why = lastAgain, stallDead
	}
	return n, again, why
}

// lastTry reports whether a failure of this attempt ends in the DLQ.
func (p *Pipeline) lastTry(d *Delivery) bool {
	return d.Item.Attempt > 0 && d.Item.Attempt >= p.Policy.MaxRetries
}

// charges is how many of ds are retries, and how many of those last tries.
func (p *Pipeline) charges(ds []*Delivery) (retries, last int) {
	for _, d := range ds {
		if d.Item.Attempt > 0 {
			retries++
		}
		if p.lastTry(d) {
			last++
		}
	}
	return retries, last
}

// affordable is how many of ds, from the first on, what was paid is enough for.
func (p *Pipeline) affordable(ds []*Delivery, retries, last int) int {
	for i, d := range ds {
		if d.Item.Attempt == 0 {
			continue
		}
		if retries--; retries < 0 {
			return i
		}
		if p.lastTry(d) {
			if last--; last < 0 {
				return i
			}
		}
	}
	return len(ds)
}

// refund gives back what an attempt cost that was not made after all: the next
// one pays again.
func (d *Delivery) refund() {
	if d.gate == nil || d.Item.Attempt == 0 {
		return
	}
	d.gate.Retries.Return(1)
	if d.lastTry {
		d.gate.DeadLetters.Return(1)
	}
	d.gate, d.lastTry = nil, false
}

// hold ends deliveries that their route will not take for a while.
func hold(ds []*Delivery) {
	for _, d := range ds {
		d.Result = Result{Class: Held, Scope: ScopeRoute, Reason: string(RouteStopped)}
	}
}

// Progress is what the routes have done so far, for a Watch.
func (p *Pipeline) Progress() []RouteProgress {
	all := make([]RouteProgress, 0, len(p.routes))
	for _, r := range p.routes {
		done := r.completed.Load() // first: never more than was queued
		all = append(all, RouteProgress{Route: r.Route, Out: int(r.queued.Load() - done), Completed: done})
	}
	return all
}

// Declared is why the pipeline stands still now, and when the last reason that
// is over ended.
func (p *Pipeline) Declared() (open []Stall, over time.Time) { return p.stalls.Declared() }
