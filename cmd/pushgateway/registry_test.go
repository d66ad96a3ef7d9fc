package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// What was confirmed counts when something is added to it, also while no registry
// applies it: without that a click would bring back what the user had opted out of.
func TestPreferencesAreTheLatest(t *testing.T) {
	c := fleet(t)
	options, err := wiring.Kafka(c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	topic, err := wiring.NewUsersLog(options)
	if err != nil {
		t.Fatal(err)
	}
	defer topic.Close()
	r, err := openRegistry(c, options)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if _, err := r.Preferences(t.Context(), "u42"); err == nil {
		t.Error("nothing is built, and nothing is wanted")
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		_ = worker.RunRegistry(ctx, worker.RegistryOptions{Config: c, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	})
	client := users.NewClient(topic)
	set := func(user string, types ...string) {
		t.Helper()
		if err := client.SetPreferences(t.Context(), user, push.Preferences{Types: types}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(why string, types ...string) {
		t.Helper()
		if p, err := r.Preferences(t.Context(), "u42"); err != nil || fmt.Sprint(p.Types) != fmt.Sprint(types) {
			t.Errorf("%s: %q, %v", why, p.Types, err)
		}
	}
	set("u42", "applied")
	for tries := 0; tries < patience; tries++ {
		if u, err := r.Stored(t.Context(), "u42"); err == nil && len(u.Preferences.Types) > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	want("what Redis has", "applied")
	stop()
	running.Wait()
	want("without a registry", "applied")
	for i := range 50 {
		set(fmt.Sprintf("other-%d", i), "other")
	}
	want("others' changes", "applied")
	set("u42", "news")
	set("u42", "news", "promo")
	want("what no registry has applied", "news", "promo")
	if u, err := r.Stored(t.Context(), "u42"); err != nil || fmt.Sprint(u.Preferences.Types) != "[applied]" {
		t.Errorf("Redis has %q, so this shows nothing: %v", u.Preferences.Types, err)
	}
	set("u42")
	want("removed")
	if err := topic.Append(t.Context(), []users.Record{{Key: record.PreferencesKey("u42"), Value: []byte(`{"v":99}`)}}); err != nil {
		t.Fatal(err)
	}
	if p, err := r.Preferences(t.Context(), "u42"); err == nil {
		t.Errorf("of a version that is not known: %+v", p)
	}
	set("u42", "again")
	want("behind it", "again")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Preferences(gone, "u42"); err == nil {
		t.Error("nobody waits any more, and it was read")
	}
}
