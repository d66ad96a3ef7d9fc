package main

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
)

// A worker that is started knows what another one was asked before it begins to
// work, and hears what is asked later.
func TestAWorkerHearsWhatOthersWereAsked(t *testing.T) {
	world, err := startDemoWorld(0, 1)
	defer world.close()
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	store, err := pauses.New(world.client, wiring.Pauses(world.config, log))
	if err != nil {
		t.Fatal(err)
	}
	tell := func(r push.Route) {
		if err := store.Tell(t.Context(), []gates.Pause{{Route: r, Reason: gates.PauseAsked, Left: 10 * time.Minute}}); err != nil {
			t.Fatal(err)
		}
	}
	fcm := push.Route{Platform: push.FCM, App: demoApp}
	apns := push.Route{Platform: push.APNS, App: demoApp, Environment: push.Production}
	tell(fcm)

	d := &demo{world: world, metrics: prometheus.NewRegistry(), latency: newLatencies(), log: log}
	if d.options, err = wiring.Kafka(world.config, log); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		if err := d.work(ctx); err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	defer working.Wait()
	defer stop()
	eventually(t, "joining", func() bool { return gauge(t, d.metrics, "push_standstill_seconds", "") >= 0 })
	if gauge(t, d.metrics, "push_route_paused", fcm.String()) != 1 {
		t.Error("the worker begins to work and does not know the pause that another one was asked for")
	}
	tell(apns)
	eventually(t, "hearing of the other pause", func() bool { return gauge(t, d.metrics, "push_route_paused", apns.String()) == 1 })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s takes more than 30 s", what)
		}
	}
}

// gauge is a route's value, or of the first child if route is empty; -1 = there
// is none.
func gauge(t *testing.T, reg *prometheus.Registry, name, route string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (route == "" || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == route) {
				return m.GetGauge().GetValue()
			}
		}
	}
	return -1
}
