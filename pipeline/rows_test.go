package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/yieldtest"
)

// awayStatus is a status store that takes nothing.
type awayStatus struct{ Status }

func (awayStatus) Write(context.Context, []push.Row) error {
	return errors.New("no hosts available in the pool")
}

// What needs no row, like a copy, does not wait for a status store that is away.
func TestWithoutRowsNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pipeline{opt: Options{Status: awayStatus{}, StatusTimeout: time.Second, Events: noEvents{},
			Metrics: NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		duplicate := &Delivery{Item: &Item{Verdict: push.Duplicate}, Verdict: push.Duplicate}
		if err := p.record(ctx, []*Delivery{duplicate}, time.Now()); err != nil {
			t.Errorf("a copy waited for the store until %v", err)
		}
	})
}

// Each row has the step of the record that writes it: of two rows of a device the one
// with the higher step counts, so an attempt and a hand-over are a step each.
func TestRowsHaveTheStepOfTheirRecord(t *testing.T) {
	p := &Pipeline{}
	told := noEvents{}.Group("critical")
	for _, tt := range []struct {
		why           string
		attempt, hops int
		want          int16
	}{
		{"the first record", 0, 0, 0},
		{"after attempts", 2, 0, 2},
		{"after hand-overs", 0, 3, 3},
		{"after both", 2, 3, 5},
	} {
		sent, whole := &Item{Attempt: tt.attempt, Hops: tt.hops}, &Item{Attempt: tt.attempt, Hops: tt.hops, Verdict: push.Suppressed}
		rows := p.rowsOf([]*Delivery{
			{Item: sent, ending: Ending{State: push.StateDelivered}},
			{Item: whole, Verdict: push.Suppressed, ending: Ending{State: push.StateSuppressed}},
		}, told, time.Now())
		if len(rows) != 2 || rows[0].Step != tt.want || rows[1].Step != tt.want {
			t.Errorf("%s: got rows %+v, want two of step %d", tt.why, rows, tt.want)
		}
	}
}

// What is decided as a whole has a row for each device that its record names: a row
// without a device does not count beside theirs.
func TestAVerdictHasARowForEachNamedDevice(t *testing.T) {
	it := &Item{Verdict: push.Suppressed, Reason: push.Quiet, Devices: []string{"a", "b"}}
	rows := it.verdictRows(nil, time.Now())
	if len(rows) != 2 || rows[0].Device != "a" || rows[1].Device != "b" || rows[1].State != push.StateSuppressed {
		t.Errorf("got rows %+v, want one of each device", rows)
	}
	it.Devices = nil
	if rows = it.verdictRows(nil, time.Now()); len(rows) != 1 || rows[0].Device != "" {
		t.Errorf("got rows %+v, want one without a device", rows)
	}
}

// A one-time password does not wait until all of a group have their rows.
func TestRowsYield(t *testing.T) {
	const n = 10_000
	p, told, group := &Pipeline{}, noEvents{}.Group("critical"), []*Delivery(nil)
	for range n {
		group = append(group, &Delivery{Item: &Item{}, ending: Ending{State: push.StateDelivered}})
	}
	yieldtest.Often(t, n, func() { p.rowsOf(group, told, time.Now()) })
}
