package pipeline

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// dispatchGroup is how many deliveries are submitted at a time, at the most:
// enough to fill several TLS records of one connection. A small window is
// taken in quarters, so that it never has to run empty for the next group.
const dispatchGroup = 256

// route is one provider's pool as this pipeline sees it: what waits for it, by
// charge, and how much of its window is in use. A route that stalls fills its own window
// and stops no other.
type route struct {
	push.Route
	provider Provider
	gate     *gates.Gate
	lines    [gates.Charges]*line
	window   *semaphore.Weighted
	metrics  routeMetrics
}

func newRoute(r push.Route, provider Provider, gate *gates.Gate, window int, m *Metrics) *route {
	rt := &route{Route: r, provider: provider, gate: gate, window: semaphore.NewWeighted(int64(window)), metrics: m.route(r)}
	for c := range rt.lines {
		rt.lines[c] = &line{route: rt, charge: gates.Charge(c), waiting: newTurns()}
	}
	return rt
}

// line is what waits for a route with one charge, partition by partition in
// turns. Each has a dispatcher of its own, so that nobody waits for the tokens
// of others. One that waits for them keeps a quarter of the window at the most.
type line struct {
	*route
	charge  gates.Charge
	waiting *turns // closed by Run when nothing more is sent
}

// chargeOf is what an attempt at an item costs.
func (p *Pipeline) chargeOf(it *Item) gates.Charge {
	switch {
	case it.Attempt == 0:
		return gates.Free
	case it.Attempt < p.Policy.MaxRetries:
		return gates.Retry
	}
	return gates.LastTry
}

// lineOf is where a delivery is to wait. Its route is there.
func (p *Pipeline) lineOf(d *Delivery) *line {
	return p.routes[d.Route].lines[p.chargeOf(d.Item)]
}

// lines are those of all routes.
func (p *Pipeline) lines(yield func(*line) bool) {
	for _, r := range p.routes {
		for _, l := range r.lines {
			if !yield(l) {
				return
			}
		}
	}
}

// settled gives n places of the window back.
func (r *route) settled(n int) {
	r.window.Release(int64(n))
	r.metrics.window.Sub(float64(n))
}

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

// enqueue hands one batch's deliveries to their lines, and empties the lists.
func (p *Pipeline) enqueue(waiting map[*line][]*Delivery) {
	for l, ds := range waiting {
		if len(ds) > 0 {
			l.waiting.put(l, ds)
			waiting[l] = ds[:0]
		}
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
		open = append(open, placed{p.Status.Bucket(it.ID), it})
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
func (p *Pipeline) groupSize() int { return max(1, min(dispatchGroup, p.Window/4)) }

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

// leasePause is how soon a lapsed lease is looked at again.
const leasePause = 20 * time.Millisecond

// awaitLease waits while what is next in the line may not be sent but may be
// soon: the coordinator has not answered for a session. Meanwhile those whose
// partitions leave are given back. All deliveries of a pipeline are under one
// lease, so none is held up by another's. buf is for what it looks at, and is
// returned, perhaps grown.
func (p *Pipeline) awaitLease(ctx context.Context, l *line, buf []*Delivery) []*Delivery {
	for ctx.Err() == nil && !l.waiting.isClosed() {
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

// sendLater puts deliveries that were given back unsent ahead of the others of
// their partitions again, and returns the others in place. They hold no place of the
// window meanwhile. What may not be sent any more at all is given back.
func (p *Pipeline) sendLater(group []*Delivery) []*Delivery {
	var later map[*share][]*Delivery
	answered := group[:0]
	for _, d := range group {
		if d.share == nil || d.abandoned || d.Verdict != push.Undecided || d.Result.Class != push.NoAnswer {
			answered = append(answered, d)
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
			answered = append(answered, d)
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
			answered = append(answered, ds...)
		}
	}
	return answered
}

// unsent marks deliveries that this worker will not send. They are the next
// owner's; but what is committed is nobody's else, and goes to the hold topic.
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
	p.answered.put(ds...)
}

// giveBackLeaving returns what waits in a line that stands still for partitions
// that leave: their drain does not wait for what is ahead in the line.
func (p *Pipeline) giveBackLeaving(l *line) {
	now := time.Now()
	if ds := l.waiting.remove(func(d *Delivery) bool { return p.goesBack(d, now) }); len(ds) > 0 {
		p.giveBack(ds)
	}
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
