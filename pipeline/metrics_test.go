package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
)

// A server can make up words without end; a series each would be the end of
// whoever stores them.
func TestUnknownReasonsShareASeries(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry(), "BadDeviceToken", "UNREGISTERED")
	answers := func(class push.Class, reason string) []*Delivery {
		return []*Delivery{{Item: &Item{}, Route: push.Route{Platform: push.APNS, App: "shop", Environment: push.Production}, Result: push.Result{Class: class, Reason: reason}}}
	}
	for i := range 5000 {
		m.results("critical", answers(push.Refused, fmt.Sprintf("MadeUp%d", i)))
	}
	known := map[string]push.Class{"BadDeviceToken": push.Gone, "UNREGISTERED": push.Gone, "": push.Delivered, string(push.Timeout): push.Again, string(push.InvalidToken): push.Refused, string(push.Panicked): push.Again}
	for reason, class := range known {
		m.results("critical", answers(class, reason))
	}
	if n := testutil.CollectAndCount(m.responses); n != len(known)+1 {
		t.Errorf("got %d series, want %d", n, len(known)+1)
	}
	if got := testutil.ToFloat64(m.responses.WithLabelValues("apns", "shop", "refused", "other")); got != 5000 {
		t.Errorf("got %v under the label other, want 5000", got)
	}
	for reason, class := range known {
		if got := testutil.ToFloat64(m.responses.WithLabelValues("apns", "shop", class.String(), reason)); got != 1 {
			t.Errorf("%q: %v", reason, got)
		}
	}
}

// The first failure or panic of a step shows as a change: its series is there from
// the start, at 0, for each lane.
func TestEachStepHasItsSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	m.steps("critical", []Stage{nothing{}})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, f := range families {
		if f.GetName() != "push_step_failures_total" && f.GetName() != "push_panics_total" {
			continue
		}
		for _, s := range f.Metric {
			if s.GetCounter().GetValue() != 0 || s.Label[0].GetValue() != "critical" {
				t.Errorf("%v", s)
			}
			got[f.GetName()] = append(got[f.GetName()], s.Label[1].GetValue())
		}
	}
	want := map[string][]string{
		"push_step_failures_total": {"commit", "confirm", "filter", "hand-over", "intents", "latest", "nothing", "recheck", "status"},
		"push_panics_total":        {"decode", "encode", "nothing", "read", "send", "settle"},
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("series for %q, want %q", got, want)
	}
}

// nothing is a stage that does nothing.
type nothing struct{}

func (nothing) Name() Step                          { return "nothing" }
func (nothing) Apply(context.Context, *Batch) error { return nil }
