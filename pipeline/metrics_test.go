package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

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
		"push_step_failures_total": {"commit", "confirm", "filter", "hand-over", "intents", "latest", "nothing", "recheck", "status", "tell"},
		"push_panics_total":        {"decode", "encode", "nothing", "read", "send", "settle"},
	}
	if !maps.EqualFunc(got, want, slices.Equal[[]string]) {
		t.Errorf("series for %q, want %q", got, want)
	}
}

// What nobody knows is counted once, by what is done about it, and not by who gives it
// back: its next owner does.
func TestAmbiguousSendsAreCountedByWhatIsDone(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for _, tt := range []struct {
		why       string
		certainty push.Certainty
		state     push.State
		abandoned bool
		want      string // the action; "" = it is not counted
	}{
		{"accepted", push.Accepted, push.StateDelivered, false, ""},
		{"known not to be accepted", push.NotAccepted, push.StateRetrying, false, ""},
		{"sent again", push.Ambiguous, push.StateRetrying, false, "resend"},
		{"dropped", push.Ambiguous, push.StateUnknown, false, "unknown"},
		{"no retry is left", push.Ambiguous, push.StateDeadLettered, false, "end"},
		{"too late for a retry", push.Ambiguous, push.StateExpired, false, "end"},
		{"left to the next owner", push.Ambiguous, push.StateRetrying, true, ""},
	} {
		before := map[string]float64{}
		actions := []string{"resend", "unknown", "end"}
		for _, a := range actions {
			before[a] = testutil.ToFloat64(m.ambiguities.WithLabelValues(a))
		}
		m.results("critical", []*Delivery{{Item: &Item{}, Result: push.Result{Class: push.Again, Certainty: tt.certainty},
			ending: Ending{State: tt.state}, abandoned: tt.abandoned}})
		for _, a := range actions {
			want := before[a]
			if a == tt.want {
				want++
			}
			if got := testutil.ToFloat64(m.ambiguities.WithLabelValues(a)); got != want {
				t.Errorf("%s: got %v counted as %s, want %v", tt.why, got, a, want)
			}
		}
	}
}

// A device's result is counted once, and none where the provider was not asked. Only an
// answer has a latency.
func TestResultsAreCountedOnce(t *testing.T) {
	for _, tt := range []struct {
		class    push.Class
		counted  float64
		observed uint64
	}{
		{push.Unsent, 0, 0},
		{push.Held, 1, 0},
		{push.Claimed, 1, 0},
		{push.Again, 1, 1},
		{push.Delivered, 1, 1},
	} {
		reg := prometheus.NewRegistry()
		m := NewMetrics(reg)
		m.results("critical", []*Delivery{{Item: &Item{}, Route: push.Route{Platform: push.APNS, App: "shop"}, Result: push.Result{Class: tt.class}}})
		if got := testutil.ToFloat64(m.deliveries.WithLabelValues("apns", tt.class.String())); got != tt.counted {
			t.Errorf("%v: got %v counted, want %v", tt.class, got, tt.counted)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "push_end_to_end_latency_seconds" && f.Metric[0].GetHistogram().GetSampleCount() != tt.observed {
				t.Errorf("%v: got %d latencies, want %d", tt.class, f.Metric[0].GetHistogram().GetSampleCount(), tt.observed)
			}
		}
	}
}

// A lane counts whose priority was lowered, from 0 on.
func TestLoweredPrioritiesAreCounted(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	lowered := m.Lowered("critical")
	if n := testutil.CollectAndCount(m.lowered); n != 1 {
		t.Errorf("got %d series before the first, want 1", n)
	}
	lowered(3)
	lowered(2)
	if got := testutil.ToFloat64(m.lowered.WithLabelValues("critical")); got != 5 {
		t.Errorf("got %v counted, want 5", got)
	}
}

// Records that end are counted by verdict; copies and those not sent on purpose have
// counters of their own.
func TestEndingsAreCounted(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	p := &Pipeline{opt: Options{Lane: "critical", Metrics: m, Events: noEvents{}}}
	p.ending([]*Item{{}, {Verdict: push.Duplicate}, {Verdict: push.Duplicate}, {Verdict: push.Suppressed, Reason: push.Quiet}})
	for name, got := range map[string]float64{
		"copies":     testutil.ToFloat64(m.deduped.WithLabelValues("critical")) - 2,
		"duplicates": testutil.ToFloat64(m.endings.WithLabelValues("critical", push.Duplicate.String())) - 2,
		"undecided":  testutil.ToFloat64(m.endings.WithLabelValues("critical", push.Undecided.String())) - 1,
		"suppressed": testutil.ToFloat64(m.suppressed.WithLabelValues("critical", string(push.Quiet))) - 1,
	} {
		if got != 0 {
			t.Errorf("%s: %+v too many", name, got)
		}
	}
}

// Each time that a step fails is counted, also when it recovers.
func TestEachFailureOfAStepIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics(prometheus.NewRegistry())
		p := &Pipeline{opt: Options{Lane: "critical", Metrics: m, Log: slog.New(slog.DiscardHandler)}}
		calls := 0
		err := p.repeat(t.Context(), StepFilter, nil, func() error {
			if calls++; calls < 3 {
				return errors.New("redis is away")
			}
			return nil
		})
		if got := testutil.ToFloat64(m.failures.WithLabelValues("critical", string(StepFilter))); err != nil || got != 2 {
			t.Errorf("got %v failures counted (error %v), want 2", got, err)
		}
	})
}

// Each batch that is polled is counted with its size.
func TestPolledBatchesAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	tracker := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10})
	p := &Pipeline{opt: Options{Lane: "critical", Source: &lastBatch{batch: &Batch{Tracker: tracker, Items: make([]Item, 7)}}, Metrics: NewMetrics(reg)}}
	ctx, stop := context.WithCancel(t.Context())
	stop() // one batch, then the end
	batches, failed := p.poll(ctx, stop)
	<-batches
	<-failed
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "push_batch_size" {
			if h := f.Metric[0].GetHistogram(); h.GetSampleCount() != 1 || h.GetSampleSum() != 7 {
				t.Errorf("got %d batches of %v records in all, want one of 7", h.GetSampleCount(), h.GetSampleSum())
			}
			return
		}
	}
	t.Error("no batch is counted")
}

// nothing is a stage that does nothing.
type nothing struct{}

func (nothing) Name() Step                          { return "nothing" }
func (nothing) Apply(context.Context, *Batch) error { return nil }
