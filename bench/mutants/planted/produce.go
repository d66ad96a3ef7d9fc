//go:build planted

package planted

import (
	"context"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// The bugs of hand-overs.

// plantedProducer hands over in another way.
type plantedProducer struct {
	pipeline.Producer
	produce func(ctx context.Context, hs []pipeline.Handover) error
}

func (p plantedProducer) Produce(ctx context.Context, hs []pipeline.Handover) error {
	return p.produce(ctx, hs)
}

// ackUnproduced takes hand-overs to one destination for acknowledged that are
// produced only later.
func ackUnproduced(s *soil, to pipeline.Destination) {
	inner := s.Producer
	s.Producer = plantedProducer{inner, func(ctx context.Context, hs []pipeline.Handover) error {
		late := slices.DeleteFunc(slices.Clone(hs), func(h pipeline.Handover) bool { return h.To != to })
		hs = slices.DeleteFunc(slices.Clone(hs), func(h pipeline.Handover) bool { return h.To == to })
		if len(late) > 0 {
			time.AfterFunc(400*time.Millisecond, func() { _ = inner.Produce(context.Background(), late) })
		}
		if len(hs) == 0 {
			return nil
		}
		return inner.Produce(ctx, hs)
	}}
}

func ackRetryUnproduced(s *soil) { ackUnproduced(s, pipeline.ToRetry) }
func ackDLQUnproduced(s *soil)   { ackUnproduced(s, pipeline.ToDLQ) }

// ignoreProduceRefusal goes on when Kafka has not taken a hand-over.
func ignoreProduceRefusal(s *soil) {
	inner := s.Producer
	s.Producer = plantedProducer{inner, func(ctx context.Context, hs []pipeline.Handover) error {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_ = inner.Produce(ctx, hs)
		return nil
	}}
}

// rowBefore writes the rows that say a record was handed over to one destination
// before that record is produced, which takes it a second.
func rowBefore(s *soil, to pipeline.Destination) {
	producer, status := s.Producer, s.Status
	s.Producer = plantedProducer{producer, func(ctx context.Context, hs []pipeline.Handover) error {
		var rows []push.Row
		for i := range hs {
			if hs[i].To == to {
				rows = append(rows, handedOver(&hs[i])...)
			}
		}
		if len(rows) > 0 {
			if err := status.Write(ctx, rows); err != nil {
				return err
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return producer.Produce(ctx, hs)
	}}
}

// handedOver are the rows that the pipeline writes about a hand-over.
func handedOver(h *pipeline.Handover) (rows []push.Row) {
	it := h.Item
	row := push.Row{ID: it.RowID(), Step: it.Step(), State: h.State, At: time.Now(), Reason: string(h.Reason), UserHash: push.UserHash(it.Owner())}
	if h.To == pipeline.ToDLQ {
		row.State = push.StateDeadLettered
	}
	if len(h.Devices) == 0 {
		if it.Detail != "" {
			row.Reason += ":" + it.Detail
		}
		return []push.Row{row}
	}
	for _, row.Device = range h.Devices {
		rows = append(rows, row)
	}
	return rows
}

func rowBeforeRetry(s *soil) { rowBefore(s, pipeline.ToRetry) }
func rowBeforeDLQ(s *soil)   { rowBefore(s, pipeline.ToDLQ) }
