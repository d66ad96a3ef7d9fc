package pipeline

import (
	"context"
	"time"
)

// admitPoll is the longest that a stopped route goes without looking whether
// its deliveries have expired or their partitions leave.
const admitPoll = 50 * time.Millisecond

// submit hands deliveries to the line's provider as its gate and its budgets
// let them through. While it is stopped for a moment they wait here, in their
// places of the window; when it is stopped for long they go to the hold topic.
func (p *Pipeline) submit(ctx context.Context, l *line, ds []*Delivery) {
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
		n, again, why := p.admit(now, l, ds)
		if n > 0 {
			over(now)
			if taken, err := l.provider.Submit(ctx, ds[:n], p.back); err != nil {
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
		case l.gate.Hold(now):
			hold(ds)
			p.answered.put(ds...)
			return
		case ctx.Err() != nil, l.waiting.isClosed():
			p.giveBack(ds)
			return
		}
		p.giveBackLeaving(l)
		over(now)
		over = p.stalls.Declare(now, why, l.String())
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
// when to ask again and what it waits for.
func (p *Pipeline) admit(now time.Time, l *line, ds []*Delivery) (n int, again time.Time, why string) {
	paid, again, why := l.charge.pay(now, l.gate, len(ds))
	if paid == 0 {
		return 0, again, why
	}
	n, again = l.gate.Admit(now, ds[:paid])
	l.charge.refund(l.gate, paid-n)
	for _, d := range ds[:n] {
		d.gate, d.paid, d.Deadline = l.gate, l.charge, now.Add(p.SendDeadline)
	}
	return n, again, stallRoute
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
