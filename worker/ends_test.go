package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// The signal comes at each step between the first connection and the run.
func TestAnEndAtEachStepLeavesNothingBehind(t *testing.T) {
	for step := range 8 {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			c, o, store := servers(t)
			if step == 7 {
				c.Kafka.JoinWithin = time.Hour
			}
			surroundings := goleak.IgnoreCurrent()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if step == 0 {
				open := o.OpenStatus
				o.OpenStatus = func(ctx context.Context, so status.Options) (Status, error) { stop(); return open(ctx, so) }
			}
			n := 0
			o.Wrap = func(po pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
				if n++; n == min(step, 6) {
					stop()
				}
				return po
			}
			began := time.Now()
			if err := Run(ctx, o); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("it ends with %v", err)
			}
			t.Logf("took %v", time.Since(began))
			if time.Since(began) > c.Send.Drain {
				t.Errorf("took %v, drain is %v", time.Since(began), c.Send.Drain)
			}
			goleak.VerifyNone(t, surroundings)
			left(t, c, store)
		})
	}
}

// failing is a source that fails after its first look.
type failing struct {
	pipeline.Source
	err error
}

func (f failing) Next(context.Context) (*pipeline.Batch, error) { return nil, f.err }

// Two sources fail at once, behind lanes that have joined: all are told, all leave.
func TestTwoSourcesThatFail(t *testing.T) {
	c, o, store := servers(t)
	surroundings := goleak.IgnoreCurrent()
	var n atomic.Int32
	o.Wrap = func(po pipeline.Options, _ func(push.Route) h2.Stats) pipeline.Options {
		if i := n.Add(1); i == 3 || i == 6 {
			po.Source = failing{po.Source, fmt.Errorf("source %d", i)}
		}
		return po
	}
	err := Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "source 3") && !strings.Contains(err.Error(), "source 6") {
		t.Errorf("it ends with %v", err)
	}
	t.Log(err)
	goleak.VerifyNone(t, surroundings)
	left(t, c, store)
}
