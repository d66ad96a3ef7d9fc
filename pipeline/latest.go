package pipeline

import (
	"context"
	"sync"

	"github.com/pushfleet/pushfleet/push"
)

// What becomes of an item's collapse key, all of it best effort: where it fails, an older
// retry may be sent.

// beginLatest tells of a batch before anything that was read after it is on its way.
func (p *Pipeline) beginLatest(b *Batch) {
	if p.opt.Latest != nil {
		p.opt.Latest.Begin(b.Items)
	}
}

// givenBack are the places of items that were given back, by their trackers. These stay
// counted until nothing of their partition is in flight: what is newer may still be accepted
// here, and must be noted, as the next owner tries the older one again.
type givenBack struct {
	mu sync.Mutex
	of map[*Tracker][]uint32 // guarded by mu
}

// add keeps the places of items of a tracker.
func (g *givenBack) add(t *Tracker, places []uint32) {
	if len(places) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of == nil {
		g.of = make(map[*Tracker][]uint32)
	}
	g.of[t] = append(g.of[t], places...)
}

// over returns the places of a tracker of which nothing is in flight any more; else nil.
func (g *givenBack) over(t *Tracker) []uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	places := g.of[t]
	if len(places) == 0 || t.inFlight() {
		return nil
	}
	delete(g.of, t)
	return places
}

// takePlaces returns the places of items, which are counted nowhere from then on but by them.
func takePlaces(items []*Item) []uint32 {
	places := make([]uint32, 0, len(items))
	for _, it := range items {
		if it.Place > 0 {
			places = append(places, it.Place)
			it.Place = 0
		}
	}
	return places
}

// endLatest tells of places whose items are on the last step of their way, and of those that
// were given back of a tracker of which they were the last in flight.
func (p *Pipeline) endLatest(t *Tracker, places []uint32) {
	if p.opt.Latest == nil {
		return
	}
	if places = append(places, p.givenBack.over(t)...); len(places) > 0 {
		p.opt.Latest.End(places)
	}
}

// openKeys tells of the items that other records are to carry on, beside what is done for
// them meanwhile: their rows need not wait for it, only their end. A record of the DLQ may be
// sent again too. It closes the returned channel when that is over.
func (p *Pipeline) openKeys(ctx context.Context, group []*Delivery) <-chan struct{} {
	opened := make(chan struct{})
	items := p.carriedOn(group)
	if len(items) == 0 {
		close(opened)
		return opened
	}
	go func() {
		defer close(opened)
		p.tellLatest(items, func() error { return p.opt.Latest.HandedOver(ctx, items) })
	}()
	return opened
}

// carriedOn returns the items with a collapse key of which other records carry on devices, or
// all, each once.
func (p *Pipeline) carriedOn(group []*Delivery) (items []*Item) {
	if p.opt.Latest == nil {
		return nil
	}
	known := make(map[*Item]struct{})
	for _, d := range group {
		if _, is := known[d.Item]; !is && d.Item.keyed() && d.destination() != ToFeedback {
			known[d.Item] = struct{}{}
			items = append(items, d.Item)
		}
	}
	return items
}

// noteLatest tells of the items that end. What was shed may be replayed.
func (p *Pipeline) noteLatest(ctx context.Context, items []*Item) {
	if p.opt.Latest == nil {
		return
	}
	var keyed, shed []*Item
	for _, it := range items {
		switch {
		case !it.keyed():
		case it.Verdict == push.Shed:
			shed = append(shed, it)
		default:
			keyed = append(keyed, it)
		}
	}
	p.tellLatest(shed, func() error { return p.opt.Latest.HandedOver(ctx, shed) })
	p.tellLatest(keyed, func() error { return p.opt.Latest.Accepted(ctx, keyed) })
}

// keyed reports whether the item has a collapse key that its sender gave it.
func (it *Item) keyed() bool { return it.CollapseKey != "" && !it.Derived }

func (p *Pipeline) tellLatest(items []*Item, tell func() error) {
	if len(items) > 0 && survived(StepLatest, tell) != nil {
		p.opt.Metrics.failedStep(p.opt.Lane, StepLatest)
	}
}
