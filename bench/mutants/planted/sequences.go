//go:build planted

package planted

import (
	"context"
	"math"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// The bugs that show only when one thing happens behind another.

// stopForgetsRows ends the writing of rows with the sending: once the worker is
// told to end, what is answered has no row.
func stopForgetsRows(s *soil) {
	inner := s.Status
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	ending := make(chan struct{})
	go func() { // ends with the process
		<-told
		close(ending)
	}()
	s.Status = plantedStatus{inner, func(ctx context.Context, rows []push.Row) error {
		select {
		case <-ending:
			<-ctx.Done()
			return ctx.Err()
		default:
			return inner.Write(ctx, rows)
		}
	}}
}

// skipRecheck sends what has waited by what was read when it came.
func skipRecheck(s *soil) { s.Recheck = nil }

// countGaps looks back by so many offsets as a batch has records, and not by
// records: behind marks of transactions it does not reach all of them.
func countGaps(s *soil) {
	const records = 40 // of a batch in bench/mutants
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		last := int64(math.MinInt64)
		for i := range b.Items {
			if b.Items[i].Reread {
				last = max(last, b.Items[i].Offset)
			}
		}
		for i := range b.Items {
			if it := &b.Items[i]; it.Reread && it.Offset <= last-records {
				it.Decide(push.Duplicate, "", "")
			}
		}
	}}
}

// remembersAll is a filter that believes to remember everything there ever was.
type remembersAll struct{ stages.Filter }

func (remembersAll) Horizon(time.Time) time.Time { return time.Time{} }

// trustForgotten believes the filter also about what it has forgotten since.
func trustForgotten(s *soil) {
	s.each(func(stage pipeline.Stage) pipeline.Stage {
		if d, ok := stage.(*stages.Dedupe); ok {
			return &stages.Dedupe{Filter: remembersAll{d.Filter}, Ledger: d.Ledger}
		}
		return nil
	})
}

// dropHeld forgets what it was to put aside for a route that is paused.
func dropHeld(s *soil) {
	inner := s.Producer
	s.Producer = plantedProducer{inner, func(ctx context.Context, hs []pipeline.Handover) error {
		hs = slices.DeleteFunc(slices.Clone(hs), func(h pipeline.Handover) bool { return h.To == pipeline.ToHold })
		if len(hs) == 0 {
			return nil
		}
		return inner.Produce(ctx, hs)
	}}
}

// retryIgnoresExpiry reads expires_at before the first attempt only.
func retryIgnoresExpiry(s *soil) {
	s.Source = plantedSource{Source: s.Source, polled: func(b *pipeline.Batch) {
		for i := range b.Items {
			if b.Retry {
				b.Items[i].ExpiresAt = time.Time{}
			}
		}
	}}
}

// laterIsGone takes a device that the provider asked to try later for one that
// is gone.
func laterIsGone(s *soil) {
	s.answered(func(r *push.Result) {
		if r.Class == push.Again && r.Certainty == push.NotAccepted {
			*r = push.Result{Class: push.Gone, Certainty: push.NotAccepted, Reason: r.Reason}
		}
	})
}
