package pipeline

import "context"

// What becomes of an item's collapse key, all of it best effort: where it fails, an older
// retry may be sent.

// beginLatest tells of a batch before anything that was read after it is on its way.
func (p *Pipeline) beginLatest(b *Batch) {
	if p.opt.Latest != nil {
		p.opt.Latest.Begin(b.Items)
	}
}

// endLatest tells of items on the last step of their way.
func (p *Pipeline) endLatest(items []*Item) {
	if p.opt.Latest != nil {
		p.opt.Latest.End(items)
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

// noteLatest tells of the items that end.
func (p *Pipeline) noteLatest(ctx context.Context, items []*Item) {
	if p.opt.Latest == nil {
		return
	}
	var keyed []*Item
	for _, it := range items {
		if it.keyed() {
			keyed = append(keyed, it)
		}
	}
	p.tellLatest(keyed, func() error { return p.opt.Latest.Accepted(ctx, keyed) })
}

// keyed reports whether the item has a collapse key that its sender gave it.
func (it *Item) keyed() bool { return it.CollapseKey != "" && !it.Derived }

func (p *Pipeline) tellLatest(items []*Item, tell func() error) {
	if len(items) > 0 && survived(StepLatest, tell) != nil {
		p.opt.Metrics.failedStep(p.opt.Lane, StepLatest)
	}
}
