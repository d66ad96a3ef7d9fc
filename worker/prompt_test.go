package worker

import (
	"context"
	"errors"
	"testing"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

var errPromptly, errWaits = errors.New("written promptly"), errors.New("written when others have come")

// impatient tells how it is written to.
type impatient struct{ *status.Memory }

func (impatient) Write(context.Context, []push.Row) error         { return errWaits }
func (impatient) WritePromptly(context.Context, []push.Row) error { return errPromptly }

// Lanes whose pushes wait for rows have them written promptly, others not; and the store that
// workers have can do that.
func TestStatusOfALane(t *testing.T) {
	memory, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]error{configs.AtMostOnce: errPromptly, configs.AtLeastOnce: errWaits, configs.EffectivelyOnce: errWaits} {
		s := statusOf(&configs.Lane{Mode: mode}, impatient{memory})
		if err := s.Write(t.Context(), nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", mode, err, want)
		}
	}
	if s := statusOf(&configs.Lane{Mode: configs.AtMostOnce}, memory); s != memory {
		t.Errorf("a store that never waits is %T", s)
	}
	if _, ok := any((*status.Cassandra)(nil)).(prompt); !ok {
		t.Error("Cassandra is written to as if nothing waited for rows")
	}
}
