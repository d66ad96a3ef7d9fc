package fanout

import (
	"context"
	"log/slog"
	"time"
)

// HoldFor is how long a chunk of a paused message waits until its state is looked at
// again: so long it takes, at most, until a message that is resumed goes on.
const HoldFor = 10 * time.Second

// Holder keeps chunks of paused messages out of the way of others. It is safe for
// concurrent use.
type Holder struct {
	Producer Producer
	Notes    Notes
	Metrics  *Metrics
	Log      *slog.Logger
}

// Do does the work of one record of a HoldTopic: when its time has come it goes back to
// the chunks, or waits once more, or ends. With nil that is durable; with an error it
// must be done again.
func (h *Holder) Do(ctx context.Context, w *Work) error {
	c, err := DecodeChunk(w.Value)
	if err != nil {
		return dead(ctx, h.Producer, h.Metrics, h.Log, w, err)
	}
	if wait := min(time.Until(w.At.Add(HoldFor)), HoldFor); wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-w.Leaving:
			return errLeaving
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	state, err := h.Notes.State(ctx, c.Message)
	if err != nil {
		return err
	}
	switch state {
	case Cancelled:
		ended, err := h.Notes.Ended(ctx, c.Message, c.Part)
		if err != nil {
			return err
		}
		if ended { // as another copy: what that came to stands
			h.Metrics.chunk(c.Lane, "ended_before")
			return nil
		}
		counts := c.Done.Counts
		counts.Stopped = true
		err = h.Notes.End(ctx, c.Message, c.Part, &counts)
		if err == nil {
			h.Metrics.chunk(c.Lane, "cancelled")
		}
		return err
	case Paused:
		return put(ctx, h.Producer, c.record(HoldTopic(c.Lane)))
	}
	return put(ctx, h.Producer, c.record(ChunksTopic(c.Lane)))
}
