package users_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// seldom are the options of a registry that looks every ten seconds, for tests
// that wait for minutes: each look is at every shard. A user may have 100
// devices.
func seldom() users.RegistryOptions {
	o := userstest.RegistryOptions()
	o.CheckInterval, o.BeatInterval = 10*time.Second, 10*time.Second
	o.Devices = record.DeviceLimits{User: 100, App: 100}
	return o
}

// However many registries read the reports, together they remove no more
// devices a minute than the guard lets one of them.
func TestTheGuardIsTheFleets(t *testing.T) {
	virtual(t, func(w *world) {
		const each, perMinute = 25, 10
		o := users.DefaultFeedbackOptions()
		o.PerMinute = perMinute
		for i := range 2 * each {
			w.Register("ada", i, 1)
		}
		w.Run(seldom())
		w.agree()
		began := time.Now()
		var feeding sync.WaitGroup
		for f := range 2 {
			var reports []string
			for i := range each {
				reports = append(reports, feedback("ada", f*each+i, 2, 3))
			}
			feeding.Go(func() { w.feed(o, reports...) })
		}
		feeding.Wait()
		if took, least := time.Since(began), (2*each/perMinute-1)*time.Minute; took < least || took > least+time.Minute {
			t.Errorf("%d removals at %d a minute took %v, want %v", 2*each, perMinute, took, least)
		}
	})
}

// Whatever else stands where removals are counted makes way: it holds up no
// report.
func TestTheGuardsCountIsGarbage(t *testing.T) {
	for name, spoil := range map[string]func(w *world) error{
		"no number":  func(w *world) error { return w.Redis.Set(w.Ctx, "feedback:removed", "many", 0).Err() },
		"a fraction": func(w *world) error { return w.Redis.Set(w.Ctx, "feedback:removed", "1.5", 0).Err() },
		"below zero": func(w *world) error { return w.Redis.Set(w.Ctx, "feedback:removed", "-1000000", 0).Err() },
		"no string":  func(w *world) error { return w.Redis.HSet(w.Ctx, "feedback:removed", "a", "b").Err() },
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(w *world) {
				const each, perMinute = 15, 10
				o := users.DefaultFeedbackOptions()
				o.PerMinute = perMinute
				var reports []string
				for i := range each {
					w.Register("ada", i, 1)
					reports = append(reports, feedback("ada", i, 2, 3))
				}
				w.Run(seldom())
				w.agree()
				w.Must(spoil(w))
				began := time.Now()
				w.feed(o, reports...)
				if took := time.Since(began); took < time.Minute {
					t.Errorf("%d removals at %d a minute took %v", each, perMinute, took)
				}
				w.agree()
				if left := len(w.Look("ada").Devices); left != 0 {
					t.Errorf("%d devices are left", left)
				}
			})
		})
	}
}

// Two writes never leave a shard at the same version: a registry whose write
// was lost in a failover must see that another one wrote instead.
func TestVersionsAreNeverRepeated(t *testing.T) {
	virtual(t, func(w *world) {
		o := userstest.RegistryOptions()
		o.BeatInterval = time.Second
		w.fill()
		stop := w.Run(o)
		w.agree()
		stop()
		before, err := w.Redis.HGetAll(w.Ctx, shards.OffsetsKey(0)).Result()
		w.Must(err)
		beat := func() string {
			t.Helper()
			w.Must(w.Redis.HSet(w.Ctx, shards.OffsetsKey(0), before).Err()) // a copy without the latest writes
			stop := w.Run(o)
			defer stop()
			for began := time.Now(); time.Since(began) < userstest.Patience; time.Sleep(100 * time.Millisecond) {
				if v := w.Redis.HGet(w.Ctx, shards.OffsetsKey(0), "v").Val(); v != before["v"] {
					return v
				}
			}
			t.Fatal("nothing was written")
			return ""
		}
		if first, second := beat(), beat(); first == second {
			t.Errorf("two writes left the version %s", first)
		}
	})
}

// away is a follower that cannot be reached while it is away.
type away struct {
	users.Follower
	away *atomic.Bool
}

func (f away) Spans(ctx context.Context) ([]users.Span, error) {
	if f.away.Load() {
		return nil, errors.New("nobody answers")
	}
	return f.Follower.Spans(ctx)
}

// figure is what a metric without labels says.
func (w *world) figure(reg *prometheus.Registry, name string) float64 {
	w.T.Helper()
	families, err := reg.Gather()
	w.Must(err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return math.NaN()
}

// Who fails is not up to date, however little it had to read before: that
// shows in its progress and in its lag, until it follows again.
func TestFailingShows(t *testing.T) {
	virtual(t, func(w *world) {
		var gone atomic.Bool
		reg := prometheus.NewRegistry()
		lag := func() float64 { return w.figure(reg, "push_registry_lag_records") }
		var last atomic.Pointer[users.Progress]
		o := userstest.RegistryOptions()
		o.Progress = func(p users.Progress) { last.Store(&p) }
		topics := w.Topics(userstest.NewCrash(-1, false, nil))
		topics.Follower = away{topics.Follower, &gone}
		r, err := users.NewRegistry(w.Redis, topics, o, users.NewMetrics(reg), quiet)
		w.Must(err)
		ctx, cancel := context.WithCancel(w.Ctx)
		done := make(chan struct{})
		gone.Store(true)
		go func() {
			defer close(done)
			_ = r.Run(ctx)
		}()
		defer func() {
			cancel()
			<-done
		}()
		for _, step := range []struct{ away, fails bool }{{true, true}, {false, false}, {true, true}, {false, false}} {
			gone.Store(step.away)
			time.Sleep(5 * time.Second)
			if p := last.Load(); (p.Err != nil) != step.fails || math.IsInf(lag(), 1) != step.fails {
				t.Errorf("away %v: progress %+v, lag %v", step.away, *p, lag())
			}
		}
	})
}
