package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// seenIDs returns the ids that the filter is to remember. A record without a usable
// id has none, and a reused id belongs to another record.
func seenIDs(items []*Item) []string {
	ids := make([]string, 0, len(items))
	for _, it := range items {
		if it.ID != "" && it.Reason != push.IDReused {
			ids = append(ids, it.ID)
		}
	}
	return ids
}

// noteLatest is best effort: if it fails, an older retry may be sent.
func (p *Pipeline) noteLatest(ctx context.Context, items []*Item) {
	if p.opt.Latest == nil {
		return
	}
	var keyed []*Item
	for _, it := range items {
		if it.CollapseKey != "" && !it.Derived {
			keyed = append(keyed, it)
		}
	}
	if len(keyed) > 0 && survived(StepLatest, func() error { return p.opt.Latest.Accepted(ctx, keyed) }) != nil {
		p.opt.Metrics.failedStep(p.opt.Lane, StepLatest)
	}
}

// isAbandoned reports whether the item has a delivery without a durable end.
func (it *Item) isAbandoned() bool { return atomic.LoadUint32(&it.abandoned) != 0 }

// leaving reports whether the item's partition is leaving.
func (it *Item) leaving() bool { return it.batch.Tracker.Draining() }

// forTrackers calls mark once for each tracker with its items.
func forTrackers(items []*Item, mark func(*Tracker, []*Item)) {
	of := make(map[*Tracker][]*Item)
	for _, it := range items {
		of[it.batch.Tracker] = append(of[it.batch.Tracker], it)
	}
	for t, its := range of {
		mark(t, its)
	}
}

// ending counts items whose rows are durable. An item whose devices all belong to
// another record by now ends as a copy.
func (p *Pipeline) ending(items []*Item) {
	told := p.opt.Events.Group(p.opt.Lane)
	for _, it := range items {
		if it.Verdict == push.Undecided && it.claimed() {
			it.Decide(push.Duplicate, "", "")
		}
		if it.Verdict == push.Duplicate && !it.Reread {
			told.Duplicate(it)
		}
	}
	told.Count(time.Now())
	p.opt.Metrics.ended(p.opt.Lane, items)
}

// claimed reports whether all devices of the item belong to another record.
func (it *Item) claimed() bool {
	for j := range it.Deliveries {
		if it.Deliveries[j].Result.Class != push.Claimed {
			return false
		}
	}
	return len(it.Deliveries) > 0
}
