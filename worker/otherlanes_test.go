package worker

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/push"
)

// A file that has other lanes than those running changes the preferences of all that
// run, also of one that it no longer has. What it says of the lanes needs a restart.
func TestLanesThatRunFollowAFileWithOthers(t *testing.T) {
	started := configs.Default()
	started.Lanes[0].IgnoreBlocked = true
	r, err := newRules(started, nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	look := func(c *configs.Config) {
		for range 2 {
			r.look(func() (*configs.Config, error) { return c, nil }, time.Now())
		}
	}
	other := configs.Default()
	other.Lanes = other.Lanes[1:]
	other.Lanes[0].IgnoreBlocked = !started.Lanes[1].IgnoreBlocked
	other.Preferences.OptInTypes = []string{"survey"}
	look(other)
	for _, l := range started.Lanes {
		if c := r.preferences(l.Name).Consent; !c.OptIn["survey"] || c.IgnoreBlocked != l.IgnoreBlocked {
			t.Errorf("lane %s: %+v, want surveys to be asked for, and blocked users as at the start", l.Name, c)
		}
	}
}

// The countries alone change too.
func TestCountriesAloneAreReloaded(t *testing.T) {
	r, err := newRules(configs.Default(), nil, nil, func(bool) {}, slog.New(slog.DiscardHandler), prometheus.NewRegistry(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := configs.Default()
	c.Countries = []configs.Country{{Country: "DE", Zone: "Europe/Berlin"}}
	for range 2 {
		r.look(func() (*configs.Config, error) { return c, nil }, time.Now())
	}
	if zone := r.zone(&push.User{Profile: push.Profile{Country: "DE"}}).String(); zone != "Europe/Berlin" {
		t.Errorf("by the clock of %s, want Europe/Berlin", zone)
	}
}
