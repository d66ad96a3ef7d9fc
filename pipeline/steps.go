package pipeline

import "context"

// produce returns nil once the records are acknowledged, and an error only when
// ctx ended first.
func (p *Pipeline) produce(ctx context.Context, hs []Handover) error {
	if len(hs) == 0 {
		return nil
	}
	return p.repeat(ctx, "hand-over", nil, func() error { return p.Producer.Produce(ctx, hs) })
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
	if len(keyed) > 0 && p.Latest.Accepted(ctx, keyed) != nil {
		p.Metrics.failedStep(p.Lane, "latest")
	}
}

// writeStatus returns nil once the rows are durable, and an error only when ctx
// ended first.
func (p *Pipeline) writeStatus(ctx context.Context, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	return p.repeat(ctx, "status", nil, func() error {
		ctx, cancel := context.WithTimeout(ctx, p.StatusTimeout)
		defer cancel()
		return p.Status.Write(ctx, rows)
	})
}
