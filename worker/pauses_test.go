package worker

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring"
)

// A worker knows the pauses that others were asked for before it starts to work,
// and learns of later ones while it works.
func TestAWorkerLearnsOfOthersPauses(t *testing.T) {
	c, o, _ := servers(t)
	shop, bank := fcmApp(t, c, "shop"), fcmApp(t, c, "bank")
	options, err := wiring.Redis(c)
	if err != nil {
		t.Fatal(err)
	}
	client, err := shards.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	store, err := pauses.New(client, wiring.Pauses(c, slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	tell := func(r push.Route) {
		if err := store.Tell(t.Context(), []gates.Pause{{Route: r, Reason: gates.PauseAsked, Left: 10 * time.Minute}}); err != nil {
			t.Fatal(err)
		}
	}
	tell(shop)

	metrics := prometheus.NewRegistry()
	o.Metrics = metrics
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		if err := Run(ctx, o); err != nil {
			t.Errorf("the worker: %v", err)
		}
	})
	defer working.Wait()
	defer stop()
	await(t, "the worker has joined", func() bool { return gauge(t, metrics, "push_standstill_seconds", "") >= 0 })
	if gauge(t, metrics, "push_route_paused", shop.String()) != 1 {
		t.Error("the worker starts to work without the pause that another one was asked for")
	}
	tell(bank)
	await(t, "the worker has learned of the other pause", func() bool { return gauge(t, metrics, "push_route_paused", bank.String()) == 1 })
}

// fcmApp adds an app with FCM at an address where nothing listens, and returns
// its route.
func fcmApp(t *testing.T, c *configs.Config, name string) push.Route {
	t.Helper()
	creds, err := sim.NewCredentials(name, "com.example."+name)
	if err != nil {
		t.Fatal(err)
	}
	account, err := creds.ServiceAccount("https://127.0.0.1:1/token")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "account.json")
	if err := os.WriteFile(file, account, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Apps = append(c.Apps, configs.App{Name: name, FCM: &configs.FCM{Project: creds.Project, ServiceAccountFile: file, URL: "https://127.0.0.1:1"}})
	return push.Route{Platform: push.FCM, App: name}
}

// gauge is the value for a route, or the first value if route is empty; -1 if
// there is none.
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
