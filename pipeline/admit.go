package pipeline

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// admitPoll is the longest that a stopped route goes without looking whether
// its deliveries have expired or their partitions leave.
const admitPoll = 50 * time.Millisecond

// submit hands deliveries to the line's provider as its gate and its budgets
// let them through. While it is stopped for a moment they wait here, in their
// places of the window; when it is stopped for long they go to the hold topic,
// and so does what is in the line when tokens are that long in coming: else one
// route's retries would fill their partitions' windows, for all that is behind.
func (p *Pipeline) submit(ctx context.Context, l *line, ds []*Delivery) {
	var starved time.Time // since when tokens are missing; zero = they are not
	over := func(time.Time) {}
	defer func() { over(time.Now()) }()
	for len(ds) > 0 {
		var err error
		if ds, err = p.confirmed(ctx, p.due(ds, time.Now())); err == nil {
			ds, err = p.allowed(ctx, ds)
		}
		switch {
		case err == nil:
		case ctx.Err() == nil:
			continue // without those that leave
		default:
			p.giveBack(ds)
			return
		}
		now := time.Now()
		n, again, lack := p.admit(now, l, ds)
		if n > 0 {
			over(now)
			if taken, err := l.provider.Submit(ctx, ds[:n], p.back); err != nil {
				tellGates(now, ds[taken:n])
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
			hold(ds, l.gate.Rests(now))
			p.answered.put(ds...)
			return
		case ctx.Err() != nil, l.waiting.isClosed():
			p.giveBack(ds)
			return
		}
		p.giveBackLeaving(l)
		switch {
		case lack == gates.RouteStopped:
			starved = time.Time{}
		case starved.IsZero():
			starved = now
		case now.Sub(starved) > l.gate.Patience():
			if ds = p.holdForTokens(l, ds, now); len(ds) == 0 {
				return
			}
		}
		before := over // ended only now: in between it would seem to stand still without a reason
		over = p.stalls.DeclareLine(now, string(lack), l.told(), partitionsOf(nil, ds))
		before(now)
		select {
		case <-time.After(min(max(again.Sub(now), time.Millisecond), admitPoll)):
		case <-ctx.Done():
		}
	}
}

// admit says how many of ds, from the first on, may be sent now, and if none,
// when to ask again and what it waits for.
func (p *Pipeline) admit(now time.Time, l *line, ds []*Delivery) (n int, again time.Time, lack gates.Lack) {
	ticket, n, again, lack := l.gate.Admit(now, l.charge, len(ds))
	for _, d := range ds[:n] {
		d.ticket, d.sentAt, d.Deadline = ticket, now, now.Add(p.SendDeadline)
	}
	return n, again, lack
}

// hold ends deliveries that their route will not take before until, or for a
// while.
func hold(ds []*Delivery, until time.Time) {
	for _, d := range ds {
		d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Until: until, Reason: string(push.RouteStopped)}
	}
}

// holdForTokens ends ds and all that waits behind them, each until it may be its
// turn, but for those that would expire there: it returns them.
func (p *Pipeline) holdForTokens(l *line, ds []*Delivery, now time.Time) (stay []*Delivery) {
	bearsIt := func(d *Delivery) bool { return d.Expires.IsZero() || !d.Expires.Before(now.Add(shortestHold)) }
	var held []*Delivery
	for _, d := range ds {
		if bearsIt(d) {
			held = append(held, d)
		} else {
			stay = append(stay, d)
		}
	}
	held = append(held, l.waiting.remove(bearsIt)...)
	for i, d := range held {
		d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Until: now.Add(min(l.gate.Turn(l.charge, i), longestHold)), Reason: string(push.RetriesWait)}
	}
	p.answered.put(held...)
	return stay
}

// Progress is what the lines have done so far, for a Watch.
func (p *Pipeline) Progress() []LineProgress {
	all := make([]LineProgress, 0, len(p.routes)*gates.Charges)
	for l := range p.lines {
		told := LineProgress{Line: l.told(), Partitions: l.waiting.progress()}
		for _, own := range told.Partitions {
			told.Out += own.Out
			told.Completed += own.Completed
		}
		// What the others take in their turns, and what was under way already.
		told.Turn = len(told.Partitions)*p.groupSize() + p.Window
		all = append(all, told)
	}
	return all
}

// Declared is why the pipeline stands still now, and why it did since this was
// last asked, with all partitions that have something in the line.
func (p *Pipeline) Declared() (open, ended []Stall) {
	open, ended = p.stalls.Declared()
	for _, stalls := range [][]Stall{open, ended} {
		for i := range stalls {
			if l := p.lineTold(stalls[i].Line); l != nil {
				stalls[i].Partitions = l.waiting.partitions(stalls[i].Partitions)
			}
		}
	}
	return open, ended
}

// lineTold is the line that is told as t; nil = none is.
func (p *Pipeline) lineTold(t Line) *line {
	if r := p.routes[t.Route]; r != nil {
		for _, l := range r.lines {
			if l.told() == t {
				return l
			}
		}
	}
	return nil
}

// told is what others see of it.
func (l *line) told() Line { return Line{Route: l.Route, Charge: l.charge.String()} }

// partitionsOf adds those of the deliveries' records, each once.
func partitionsOf(ps []push.Partition, ds []*Delivery) []push.Partition {
	known := make(map[push.Partition]bool, len(ps))
	for _, p := range ps {
		known[p] = true
	}
	var last *Batch
	for _, d := range ds {
		if b := d.Item.batch; b != nil && b != last {
			last = b
			if p := b.Tracker.Partition(); !known[p] {
				known[p] = true
				ps = append(ps, p)
			}
		}
	}
	return ps
}
