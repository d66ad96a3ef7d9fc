package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// counting counts the rows of each way to write.
type counting struct {
	*closedStore
	promptly, others *atomic.Int64
}

func (c counting) Write(ctx context.Context, rows []push.Row) error {
	c.others.Add(int64(len(rows)))
	return c.closedStore.Write(ctx, rows)
}

func (c counting) WritePromptly(ctx context.Context, rows []push.Row) error {
	c.promptly.Add(int64(len(rows)))
	return c.closedStore.Write(ctx, rows)
}

// A worker's lane of mode at_most_once writes no row that waits for others, and one of another
// mode no row that does not.
func TestALaneOfAtMostOnceWritesPromptly(t *testing.T) {
	for _, mode := range []string{configs.AtMostOnce, configs.AtLeastOnce} {
		synctest.Test(t, func(t *testing.T) {
			c := configs.Default()
			c.Kafka.JoinWithin, c.Kafka.Topics.Partitions, c.Kafka.Topics.Replication = 0, 1, 1
			c.Dedupe.Capacity, c.Registry.CheckInterval = 100_000, 10*time.Minute
			c.Admin.Listen, c.Registry.Listen = "", ""
			c.Lanes = c.Lanes[1:2]
			c.Lanes[0].Mode = mode
			n := newNight(t, apnsApp(t, c, "shop"), c)
			defer n.close()
			store := counting{n.store, new(atomic.Int64), new(atomic.Int64)}
			n.options.OpenStatus = func(context.Context, status.Options) (Status, error) { return store, nil }
			stop := n.worker()
			defer stop()
			time.Sleep(time.Minute) // of the bubble
			n.produce("one", "nobody", nil)
			time.Sleep(10 * time.Second)
			promptly, others := store.promptly.Load(), store.others.Load()
			if once := mode == configs.AtMostOnce; (promptly > 0) != once || (others > 0) == once {
				t.Errorf("%s: %d rows promptly, %d others", mode, promptly, others)
			}
		})
	}
}
