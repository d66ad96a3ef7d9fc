package pipeline

import (
	"context"
	"errors"
	"slices"
)

// produce returns once the records that the deliveries wait for are
// acknowledged, but for those that are refused for good, and an error only when
// ctx ended first.
func (p *Pipeline) produce(ctx context.Context, group []*Delivery) (refused []*Delivery, err error) {
	hs, of := handovers(group)
	if len(hs) == 0 {
		return nil, nil
	}
	err = p.repeat(ctx, "hand-over", nil, func() error {
		refused = nil
		err := p.Producer.Produce(ctx, hs)
		tooLarge, ok := errors.AsType[*RefusedError](err)
		if !ok {
			return err
		}
		for i, d := range group {
			if slices.Contains(tooLarge.Handovers, of[i]) {
				refused = append(refused, d)
			}
		}
		p.Log.Warn("what is too large to be handed over goes to the DLQ", "lane", p.Lane, "records", len(tooLarge.Handovers), "error", err)
		return nil
	})
	return refused, err
}

// noteLatest is best effort: what it misses lets an older retry through.
func (p *Pipeline) noteLatest(ctx context.Context, items []*Item) {
	if p.Latest == nil {
		return
	}
	var keyed []*Item
	for _, it := range items {
		if it.CollapseKey != "" && !it.Derived {
			keyed = append(keyed, it)
		}
	}
	if len(keyed) > 0 && survived("latest", func() error { return p.Latest.Accepted(ctx, keyed) }) != nil {
		p.Metrics.failedStep(p.Lane, "latest")
	}
}

// writeStatus returns nil once the rows are durable, and an error only when ctx
// ended first.
func (p *Pipeline) writeStatus(ctx context.Context, rows []Row) error {
	return p.writeRows(ctx, "status", nil, rows)
}

// writeRows returns nil once the rows are durable, and an error only when ctx
// ended first or leaving, if given, said so. There is no time-out around them
// all: the store has one for each of its attempts, and keeps what it has
// acknowledged. To begin anew with all because some took long would never end
// on a store that is slow.
func (p *Pipeline) writeRows(ctx context.Context, step string, leaving func() bool, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	return p.repeat(ctx, step, leaving, func() error {
		return p.patiently(ctx, step, leaving, func(ctx context.Context) error { return p.Status.Write(ctx, rows) })
	})
}
