package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A step that waits to be tried again when its context ends is not tried again: what
// it would write may be the next owner's by now.
func TestNothingIsRepeatedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pipeline{opt: Options{Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}}
		ctx, cancel := context.WithTimeout(t.Context(), firstPause/10)
		defer cancel()
		var tried []error // with these contexts' errors
		err := p.repeat(ctx, StepStatus, nil, func() error {
			tried = append(tried, ctx.Err())
			return errors.New("no hosts available in the pool")
		})
		if len(tried) != 1 || tried[0] != nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %d tries (%v) and error %v, want one and the context's", len(tried), tried, err)
		}
	})
}

// What a step began under its context ends with the step: otherwise each of them would
// be kept until the worker stops.
func TestTheContextOfAStepEndsWithIt(t *testing.T) {
	p := &Pipeline{opt: Options{StatusTimeout: time.Second}}
	var own context.Context
	if err := p.patiently(t.Context(), StepStatus, nil, func(ctx context.Context) error {
		own = ctx
		return ctx.Err()
	}); err != nil {
		t.Fatal(err)
	}
	if own.Err() == nil {
		t.Error("the step is over, and its context is not")
	}
}
