package pipeline

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// route is one provider's pool as this pipeline sees it: its lines, one for each
// charge, and how much of its window is in use. A route that stalls fills only its
// own window and stops no other route.
type route struct {
	push.Route
	provider Provider
	gate     *gates.Gate
	lines    [gates.Charges]*line
	window   *semaphore.Weighted
	inUse    prometheus.Gauge // how much of the window
}

func newRoute(r push.Route, provider Provider, gate *gates.Gate, window int, earliest bool, m *Metrics) *route {
	rt := &route{Route: r, provider: provider, gate: gate, window: semaphore.NewWeighted(int64(window)), inUse: m.window.WithLabelValues(r.String())}
	for c := range rt.lines {
		rt.lines[c] = &line{route: rt, charge: gates.Charge(c), waiting: newTurns(earliest)}
	}
	return rt
}

// leaveWindow frees n places in the window.
func (r *route) leaveWindow(n int) {
	r.window.Release(int64(n))
	r.inUse.Sub(float64(n))
}

// line holds the deliveries that wait for a route with one charge; it serves their
// partitions round robin. Each line has a dispatcher of its own, so that no line
// waits for the tokens of another. While it waits for tokens, a line holds at most
// a quarter of the window.
type line struct {
	*route
	charge  gates.Charge
	waiting *turns // closed by Run when nothing more is sent
}

// lines yields the lines of all routes.
func (p *Pipeline) lines(yield func(*line) bool) {
	for _, r := range p.routes {
		for _, l := range r.lines {
			if !yield(l) {
				return
			}
		}
	}
}

// lineOf returns the line in which a delivery waits. Its route must be known.
func (p *Pipeline) lineOf(d *Delivery) *line {
	return p.routes[d.Route].lines[p.chargeOf(d.Item)]
}

// chargeOf returns what an attempt at an item costs.
func (p *Pipeline) chargeOf(it *Item) gates.Charge {
	switch {
	case it.Attempt == 0:
		return gates.Free
	case it.Attempt < p.opt.Policy.MaxRetries:
		return gates.Retry
	}
	return gates.LastTry
}

// told returns the name of the line for other packages.
func (l *line) told() gates.Line { return gates.Line{Route: l.Route, Charge: l.charge.String()} }

// lineTold returns the line that other packages know as t; nil = there is none.
func (p *Pipeline) lineTold(t gates.Line) *line {
	if r := p.routes[t.Route]; r != nil {
		for _, l := range r.lines {
			if l.told() == t {
				return l
			}
		}
	}
	return nil
}

// Progress returns the progress of all lines, for a Watch.
func (p *Pipeline) Progress() []gates.LineProgress {
	all := make([]gates.LineProgress, 0, len(p.routes)*gates.Charges)
	for l := range p.lines {
		told := gates.LineProgress{Line: l.told(), Partitions: l.waiting.progress()}
		for _, own := range told.Partitions {
			told.Out += own.Out
			told.Completed += own.Completed
		}
		// What the others take in their turns, and what was under way already.
		told.Turn = len(told.Partitions)*p.groupSize() + p.opt.Window
		if p.opt.EarliestFirst { // first in one round and last in the next
			told.Turn += len(told.Partitions) * p.groupSize()
		}
		all = append(all, told)
	}
	return all
}

// Pushes returns how many places of the windows each topic has: deliveries that are sent
// or about to be, and whose rows are not durable yet. For those who watch it.
func (p *Pipeline) Pushes() map[string]int64 {
	all := make(map[string]int64)
	for l := range p.lines {
		l.waiting.taken(all)
	}
	return all
}

// Bound is the most pushes that a hard kill can repeat: push_duplicate_bound.
func (p *Pipeline) Bound() int { return len(p.routes) * p.opt.Window }

// Stalls returns the reasons why the pipeline is blocked now. Unlike Declared it changes
// nothing.
func (p *Pipeline) Stalls() []gates.Stall {
	open := p.stalls.Current()
	p.nameWaiting(open)
	return open
}

// Dispatched returns how many records have begun to be sent since the start.
func (p *Pipeline) Dispatched() uint64 { return p.dispatched.Load() }

// Trackers returns the trackers of the batches in the pipeline, in no order.
func (p *Pipeline) Trackers() []*Tracker { return slices.Collect(maps.Keys(p.assigned.all())) }

// Declared returns the reasons why the pipeline is blocked now, and those that have
// ended since the last call, with all partitions that have something in the line.
func (p *Pipeline) Declared() (open, ended []gates.Stall) {
	open, ended = p.stalls.Declared()
	p.nameWaiting(open)
	p.nameWaiting(ended)
	return open, ended
}

// nameWaiting adds to each line's stall the partitions that have something in the line.
func (p *Pipeline) nameWaiting(stalls []gates.Stall) {
	for i := range stalls {
		if l := p.lineTold(stalls[i].Line); l != nil {
			stalls[i].Partitions = l.waiting.partitions(stalls[i].Partitions)
		}
	}
}

// partitionsOf returns the partitions of the deliveries' records, each once.
func partitionsOf(ds []*Delivery) (ps []push.Partition) {
	known := make(map[push.Partition]struct{})
	for _, d := range ds {
		known[d.Item.batch.Tracker.Partition()] = struct{}{}
	}
	return slices.Collect(maps.Keys(known))
}
