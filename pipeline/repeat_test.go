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

// A step that works again, or is over, is no stall any more.
func TestAStepThatIsOverIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pipeline{opt: Options{Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}}
		open := func() int {
			stalls, _ := p.Declared()
			return len(stalls)
		}
		tried := 0
		if err := p.repeat(t.Context(), StepStatus, nil, func() error {
			if tried++; tried < 3 {
				return errors.New("no hosts available in the pool")
			}
			if open() != 1 {
				t.Errorf("%d stalls while it fails, want 1", open())
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if open() != 0 {
			t.Errorf("%d stalls after it worked", open())
		}
		leaving := func() bool { return tried > 5 }
		if err := p.repeat(t.Context(), StepStatus, leaving, func() error { tried++; return errors.New("again") }); !errors.Is(err, errLeaving) || open() != 0 {
			t.Errorf("ended with %v and %d stalls, want none", err, open())
		}
	})
}
