package pipeline

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// dispatchGroup is how many deliveries are submitted at a time, at the most:
// enough to fill several TLS records of one connection. A small window is
// taken in quarters, so that it never has to run empty for the next group.
const dispatchGroup = 256

// sendAll takes the batches that are through the stages until there are no
// more, and hands their deliveries to the routes; those that were decided on
// the way have nothing to wait for. It never waits itself: a lane in which
// nothing can be handed over goes on sending.
func (p *Pipeline) sendAll(batches <-chan *Batch) {
	waiting := make(map[*line][]*Delivery, len(p.routes))
	for b := range batches {
		p.answered.put(p.sort(b, waiting)...)
		p.enqueue(waiting)
	}
}

// sort spreads the deliveries of b over the lines, and returns those that are
// decided already. Deliveries go in the order of their status buckets, so that
// the rows of neighbouring answers fall into few partitions.
func (p *Pipeline) sort(b *Batch, waiting map[*line][]*Delivery) (decided []*Delivery) {
	type placed struct {
		bucket int64
		item   *Item
	}
	open := make([]placed, 0, len(b.Items))
	var whole []Delivery
	for i := range b.Items {
		it := &b.Items[i]
		if len(it.Deliveries) == 0 {
			it.Decide(push.Suppressed, push.NoDevice, "")
		}
		if it.Verdict != push.Undecided {
			whole = append(whole, Delivery{Item: it, Verdict: it.Verdict, Reason: it.Reason})
			it.unanswered = 1
			continue
		}
		it.unanswered = int32(len(it.Deliveries))
		for j := range it.Deliveries {
			d := &it.Deliveries[j]
			if d.Verdict == push.Undecided && p.routes[d.Route] == nil {
				d.Verdict, d.Reason = push.Failed, push.NoRoute
			}
			if d.Verdict != push.Undecided {
				decided = append(decided, d)
			}
		}
		open = append(open, placed{p.opt.Status.Bucket(it.ID), it})
	}
	for i := range whole {
		decided = append(decided, &whole[i])
	}
	slices.SortFunc(open, func(a, b placed) int { return cmp.Compare(a.bucket, b.bucket) })
	for _, o := range open {
		for j := range o.item.Deliveries {
			if d := &o.item.Deliveries[j]; d.Verdict == push.Undecided {
				l := p.lineOf(d)
				waiting[l] = append(waiting[l], d)
			}
		}
	}
	return decided
}

// enqueue hands one batch's deliveries to their lines, and empties the lists.
func (p *Pipeline) enqueue(waiting map[*line][]*Delivery) {
	for l, ds := range waiting {
		if len(ds) > 0 {
			l.waiting.put(l, ds)
			waiting[l] = ds[:0]
		}
	}
}

// dispatch submits what waits in one line, as fast as its window and its
// provider's queue take it, until the queue is closed and empty. After polling
// has ended only what is committed is sent, until submitting ends.
func (p *Pipeline) dispatch(polling, submitting context.Context, l *line) {
	var group []*Delivery
	for l.waiting.await() {
		group = p.awaitLease(submitting, l, group)
		if group = p.enter(polling, submitting, l, group); len(group) > 0 {
			p.submit(submitting, l, group)
		}
	}
}

// groupSize is the most deliveries that are submitted at a time.
func (p *Pipeline) groupSize() int { return max(1, min(dispatchGroup, p.opt.Window/4)) }

// leasePause is how soon a lapsed lease is looked at again.
const leasePause = 20 * time.Millisecond

// awaitLease waits while what is next in the line may not be sent but may be
// soon: the coordinator has not answered for a session. Meanwhile those whose
// partitions leave are given back. All deliveries of a pipeline are under one
// lease, so none is held up by another's. buf is for what it looks at, and is
// returned, perhaps grown.
func (p *Pipeline) awaitLease(ctx context.Context, l *line, buf []*Delivery) []*Delivery {
	for ctx.Err() == nil {
		buf = l.waiting.next(buf, p.groupSize())
		if !slices.ContainsFunc(buf, func(d *Delivery) bool { return d.unowned(time.Now()) }) {
			break
		}
		p.giveBackLeaving(l)
		select {
		case <-time.After(leasePause):
		case <-ctx.Done():
		}
	}
	return buf
}

// enter waits for places of the window, and takes the deliveries that get one.
// Until then they stay in their line: nobody knows how long a place takes to be
// free, and of a partition that leaves they are to go back at once. It may
// return none, when they have.
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
	l.metrics.window.Add(float64(len(group)))
	for _, d := range group {
		d.inWindow = true
	}
	return group
}

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

// due returns, in place, the deliveries of group that may be sent now. The
// others come back at once: those of a partition that is leaving, and those past
// their expiry as such.
func (p *Pipeline) due(group []*Delivery, now time.Time) []*Delivery {
	due := group[:0]
	for _, d := range group {
		switch {
		case d.unowned(now): // leaving for good, or to be sent later
			p.answered.put(d)
		case p.goesBack(d, now):
			p.giveBack([]*Delivery{d})
		case now.After(d.Expires):
			d.Result = push.Result{Class: push.Refused, Expired: true}
			p.answered.put(d)
		default:
			due = append(due, d)
		}
	}
	return due
}

// admit says how many of ds, from the first on, may be sent now, and if none,
// when to ask again and what it waits for.
func (p *Pipeline) admit(now time.Time, l *line, ds []*Delivery) (n int, again time.Time, lack gates.Lack) {
	ticket, n, again, lack := l.gate.Admit(now, l.charge, len(ds))
	for _, d := range ds[:n] {
		d.ticket, d.sentAt, d.Deadline = ticket, now, now.Add(p.opt.SendDeadline)
	}
	return n, again, lack
}

// back takes deliveries back from a provider. The gates hear of them first: one
// that heard only after a slow status write would let thousands through.
func (p *Pipeline) back(ds []*Delivery) {
	tellGates(time.Now(), ds)
	p.answered.put(ds...)
}

// tellGates tells the gates what became of deliveries that they admitted.
func tellGates(now time.Time, ds []*Delivery) {
	var group [dispatchGroup]gates.Answer
	for len(ds) > 0 {
		n := min(len(ds), len(group))
		for i, d := range ds[:n] {
			group[i] = gates.Answer{Ticket: d.ticket, Result: &d.Result}
		}
		gates.Answered(now, group[:n])
		ds = ds[n:]
	}
}
