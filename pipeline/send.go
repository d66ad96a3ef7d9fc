package pipeline

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// dispatchGroup is the most deliveries that are submitted at a time: enough to
// fill several TLS records of one connection. Of a small window a group takes a
// quarter, so that the window need not be empty before the next group enters.
const dispatchGroup = 256

// sendAll takes the batches that are through the stages until there are no more,
// and hands their deliveries to the lines. Deliveries that a stage has decided go
// straight to settle. sendAll never blocks on a line or a hand-over, so a lane
// goes on sending while its hand-overs fail.
func (p *Pipeline) sendAll(batches <-chan *Batch) {
	waiting := make(map[*line][]*Delivery, len(p.routes))
	for b := range batches {
		p.toSettle.put(p.sort(b, waiting)...)
		p.enqueue(waiting)
	}
}

// sort distributes the deliveries of b to the lines, and returns those that are
// already decided. As many as a window holds are ordered by status bucket, so that
// the rows of answers that arrive together fall into few partitions of the status
// store. Beyond that they keep the order of the log, and the first group goes first:
// where an owner of the partition has time, or a place in the window, for no more, the
// watermark moves all the same.
func (p *Pipeline) sort(b *Batch, waiting map[*line][]*Delivery) (decided []*Delivery) {
	type placed struct {
		bucket int64
		at     int // in b.Items
	}
	decided = wholes(b)
	open := make([]placed, 0, len(b.Items)-len(decided))
	needs := func(i int) byte {
		it := &b.Items[i]
		return it.names() + it.sorted()
	}
	for i := range push.Prefetching(len(b.Items), needs) {
		it := &b.Items[i]
		if it.Verdict != push.Undecided {
			continue
		}
		it.unended = int32(len(it.Deliveries))
		for j := range it.Deliveries {
			d := &it.Deliveries[j]
			if d.Verdict == push.Undecided && p.routes[d.Route] == nil {
				d.Verdict, d.Reason = push.Failed, push.NoRoute
			}
			if d.Verdict != push.Undecided {
				decided = append(decided, d)
			}
		}
		open = append(open, placed{p.opt.Status.Bucket(it.ID), i})
	}
	for together := range slices.Chunk(open[min(len(open), p.groupSize()):], p.opt.Window) {
		slices.SortFunc(together, func(a, b placed) int { return cmp.Or(cmp.Compare(a.bucket, b.bucket), a.at-b.at) })
	}
	for n := range push.Prefetching(len(open), func(n int) byte { return b.Items[open[n].at].sorted() }) {
		item := &b.Items[open[n].at]
		for j := range item.Deliveries {
			if d := &item.Deliveries[j]; d.Verdict == push.Undecided {
				l := p.lineOf(d)
				waiting[l] = append(waiting[l], d)
			}
		}
	}
	return decided
}

// wholes returns a delivery for each item that is decided as a whole, as one without a
// device is here. Under load that may be most of a batch, so they are counted first.
func wholes(b *Batch) []*Delivery {
	n := 0
	for i := range b.Items {
		it := &b.Items[i]
		if len(it.Deliveries) == 0 {
			it.Decide(push.Suppressed, push.NoDevice, "")
		}
		if it.Verdict != push.Undecided {
			n++
		}
	}
	of, all := make([]Delivery, n), make([]*Delivery, 0, n)
	for i := range b.Items {
		if it := &b.Items[i]; it.Verdict != push.Undecided {
			d := &of[len(all)]
			d.Item, d.Verdict, d.Reason = it, it.Verdict, it.Reason
			it.unended = 1
			all = append(all, d)
		}
	}
	return all
}

// enqueue hands the deliveries of one batch to their lines and empties the lists.
func (p *Pipeline) enqueue(waiting map[*line][]*Delivery) {
	for l, ds := range waiting {
		if len(ds) > 0 {
			l.waiting.put(l, ds)
			clear(ds)
			waiting[l] = ds[:0]
		}
	}
}

// dispatch submits the deliveries that wait in one line, as fast as its window
// and the provider's queue accept them, until the line is closed and empty. Once
// polling has ended, it sends only committed deliveries, until submitting ends.
func (p *Pipeline) dispatch(polling, submitting context.Context, l *line) {
	group := make([]*Delivery, 0, p.groupSize())
	for l.waiting.await() {
		p.awaitLease(submitting, l, group)
		p.submit(submitting, l, p.enter(polling, submitting, l, group))
		clear(group[:cap(group)]) // what it points to may be done before there is more
	}
}

// groupSize is the most deliveries that are submitted at a time.
func (p *Pipeline) groupSize() int { return max(1, min(dispatchGroup, p.opt.Window/4)) }

// leasePause is how soon a lapsed lease is checked again.
const leasePause = 20 * time.Millisecond

// awaitLease waits while the lease has lapsed but may be renewed: the
// coordinator has not answered for one session. Meanwhile it gives back the
// deliveries whose partitions leave. All deliveries of a pipeline share one
// lease, so none waits for the lease of another. buf is scratch space for
// groupSize deliveries.
func (p *Pipeline) awaitLease(ctx context.Context, l *line, buf []*Delivery) {
	for ctx.Err() == nil {
		buf = l.waiting.next(buf, p.groupSize())
		push.PrefetchAll(len(buf), func(i int) byte { return byte(len(buf[i].Item.Deliveries)) })
		now := time.Now()
		if !slices.ContainsFunc(buf, func(d *Delivery) bool { return d.unowned(now) }) {
			break
		}
		p.giveBackLeaving(l)
		pause(ctx, leasePause)
	}
}

// enter waits for places in the window, and takes the deliveries that get one.
// Until then they stay in their line, because it may take long until a place is
// free, and the deliveries of a partition that leaves must be given back at once.
// It returns none if all of them have been given back in the meantime.
func (p *Pipeline) enter(polling, submitting context.Context, l *line, buf []*Delivery) []*Delivery {
	places := len(l.waiting.next(buf, p.groupSize()))
	if places == 0 {
		return nil
	}
	if l.window.Acquire(polling, int64(places)) != nil {
		p.giveBackLeaving(l)
		if places = len(l.waiting.next(buf, places)); places == 0 {
			return nil
		}
		if l.window.Acquire(submitting, int64(places)) != nil {
			p.giveBack(l.waiting.take(buf, places))
			return nil
		}
	}
	group := l.waiting.take(buf, places)
	l.window.Release(int64(places - len(group)))
	l.inUse.Add(float64(len(group)))
	push.PrefetchAll(len(group), func(i int) byte { return group[i].lines() })
	begun := 0
	for _, d := range group {
		d.inWindow = true
		if d.Item.batch.Tracker.begins(d.Item) {
			begun++
		}
	}
	p.dispatched.Add(uint64(begun))
	return group
}

// admitPoll is the longest time between two checks whether the deliveries of a
// stopped route have expired or their partitions leave.
const admitPoll = 50 * time.Millisecond

// submit hands deliveries to the line's provider as the gate, the budgets and the
// route's rate let them through. If the route is stopped for a short time, or its rate
// or the fleet's limit is used up, they wait here and keep their places in the window. If it is stopped for long, they go to the hold
// topic. The rest of the line goes there too if it has to wait that long for
// tokens: otherwise one route's retries would fill the windows of their
// partitions and block all records behind them.
func (p *Pipeline) submit(ctx context.Context, l *line, ds []*Delivery) {
	var starved time.Time // when tokens ran out; zero = they have not
	over := func(time.Time) {}
	defer func() { over(time.Now()) }()
	for len(ds) > 0 {
		var err error
		ds, err = p.cleared(ctx, p.due(l, ds, time.Now()))
		switch {
		case err == nil:
		case ctx.Err() == nil:
			continue // without the deliveries whose partitions leave
		default:
			p.giveBack(ds)
			return
		}
		now := time.Now()
		n, again, lack := p.admit(now, l, ds)
		if n > 0 {
			over(now)
			if taken, err := l.provider.Submit(ctx, ds[:n], p.back); err != nil {
				returnTickets(now, ds[taken:n])
				p.giveBack(ds[taken:])
				return
			}
			ds = ds[n:]
			continue
		}
		switch {
		case len(ds) == 0:
			return
		case !lack.OfRate() && l.gate.Hold(now): // what lacks a rate is the next probe, or the route is open
			hold(ds, l.gate.Rests(now))
			p.toSettle.put(ds...)
			return
		case ctx.Err() != nil, l.waiting.isClosed():
			p.giveBack(ds)
			return
		}
		if p.assigned.leaving() { // tens of thousands may wait, and a route without rate asks each millisecond
			p.giveBackLeaving(l)
		}
		switch {
		case lack == gates.RouteStopped, lack.OfRate():
			starved = time.Time{}
		case starved.IsZero():
			starved = now
		case now.Sub(starved) > l.gate.Patience():
			if ds = p.holdForTokens(l, ds, now); len(ds) == 0 {
				return
			}
		}
		before := over // ended after the next is declared, so that there is always a reason for the wait
		over = p.stalls.DeclareLine(now, string(lack), l.told(), partitionsOf(ds))
		before(now)
		pause(ctx, min(max(again.Sub(now), time.Millisecond), admitPoll))
	}
}

// hold ends deliveries that their route does not take before until; zero = for a
// while.
func hold(ds []*Delivery, until time.Time) {
	for _, d := range ds {
		d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Until: push.At(until), Reason: string(push.RouteStopped)}
	}
}

// holdForTokens ends ds and everything that waits behind them as held, each until
// its turn may come. It returns those that would expire in the hold topic.
func (p *Pipeline) holdForTokens(l *line, ds []*Delivery, now time.Time) (stay []*Delivery) {
	bearsIt := func(d *Delivery) bool { return d.Expires.IsZero() || !d.Expires.Time().Before(now.Add(shortestHold)) }
	stay, held := split(ds, bearsIt)
	held = append(held, l.waiting.remove(bearsIt)...)
	for i, d := range held {
		d.Result = push.Result{Class: push.Held, Scope: push.ScopeRoute, Until: push.At(now.Add(l.gate.Turn(l.charge, i))), Reason: string(push.RetriesWait)}
	}
	p.toSettle.put(held...)
	return stay
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
	p.giveBack(l.waiting.remove(func(d *Delivery) bool { return p.goesBack(d, now) }))
}

// due returns, in place, the deliveries of group that may be sent now. The others
// go to settle at once: those past their expiry are marked as expired; those
// whose partition leaves are given back; those whose lease has lapsed wait again; those
// of an origin that is stopped on the route are held.
func (p *Pipeline) due(l *line, group []*Delivery, now time.Time) []*Delivery {
	due := group[:0]
	for _, d := range group {
		switch {
		case d.unowned(now): // the partition leaves, or this is sent later
			p.toSettle.put(d)
		case p.goesBack(d, now):
			p.giveBack([]*Delivery{d})
		case now.After(d.Expires.Time()):
			d.Result = push.Result{Class: push.Refused, Expired: true}
			p.toSettle.put(d)
		default:
			if until, why := l.gate.Quarantined(now, &d.Item.Message); why != "" {
				d.Result = push.Result{Class: push.Held, Scope: push.ScopeDevice, Until: push.At(until), Reason: string(why)}
				p.toSettle.put(d)
				continue
			}
			due = append(due, d)
		}
	}
	return due
}

// back receives deliveries with their results from a provider. Their tickets go
// back first: a gate that learned of a failure only after a slow status write would
// let thousands of deliveries through in the meantime.
func (p *Pipeline) back(ds []*Delivery) {
	returnTickets(time.Now(), ds)
	p.toSettle.put(ds...)
}

// returnTickets gives the deliveries' tickets back to their gates, with the results.
func returnTickets(now time.Time, ds []*Delivery) {
	var group [dispatchGroup]gates.Answer
	for len(ds) > 0 {
		n := min(len(ds), len(group))
		for i, d := range ds[:n] {
			group[i] = gates.Answer{Ticket: d.ticket, Result: &d.Result}
		}
		gates.Return(now, group[:n])
		ds = ds[n:]
	}
}
