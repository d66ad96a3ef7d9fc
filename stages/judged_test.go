package stages_test

import (
	"slices"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// What the rows mean for a record that is handed over, as a whole or for some
// devices.
func TestDedupeOfWhatWasHandedOver(t *testing.T) {
	whole := func(it *pipeline.Item) { it.Confirm, it.Hops = true, 1 }
	named := func(it *pipeline.Item) { it.Confirm, it.Attempt, it.Devices = true, 1, []string{"d1"} }
	redriven := func(it *pipeline.Item) { named(it); it.Redrive = 1 }
	for _, tt := range []struct {
		why    string
		edit   func(*pipeline.Item)
		rows   []push.Row
		want   push.Verdict
		reason push.Reason
	}{
		{"a whole item without the row that hands it over", whole, nil, push.Deferred, push.Unclaimed},
		{"a whole item with another's row", whole, []push.Row{row("n", "d1", 0, push.StateRetrying)}, push.Deferred, push.Unclaimed},
		{"a whole item with its row", whole, []push.Row{row("n", "", 0, push.StateHeld)}, push.Undecided, ""},
		{"a device that has failed since, and nothing hands it over", named,
			[]push.Row{row("n", "d1", 0, push.StateFailed)}, push.Duplicate, ""},
		{"a device that has failed since it was handed over", named,
			[]push.Row{row("n", "d1", 0, push.StateRetrying), row("n", "d1", 0, push.StateFailed)}, push.Duplicate, ""},
		{"the same in a redrive: what failed is what it is for", redriven,
			[]push.Row{row("n", "d1", 0, push.StateRetrying), row("n", "d1", 0, push.StateFailed)}, push.Undecided, ""},
	} {
		t.Run(tt.why, func(t *testing.T) {
			b := &pipeline.Batch{Items: []pipeline.Item{item("n", tt.edit)}}
			s := &stages.Dedupe{Filter: &filter{}, Ledger: &ledger{rows: map[string][]push.Row{"n": tt.rows}}}
			if err := s.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if it := &b.Items[0]; it.Verdict != tt.want || it.Reason != tt.reason {
				t.Errorf("got verdict %v %q, want %v %q", it.Verdict, it.Reason, tt.want, tt.reason)
			}
		})
	}
}

// A lost intent ends UNKNOWN for its own devices, and for no other devices of
// the item.
func TestLostIntentsNameTheirDevices(t *testing.T) {
	b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) { it.Confirm = true })}}
	s := &stages.Dedupe{Filter: &filter{}, Ledger: &ledger{rows: map[string][]push.Row{"n": {
		row("n", "d1", 0, push.StateSending), row("n", "d2", 0, push.StateSending), row("n", "d2", 0, push.StateDelivered),
		row("n", "d3", 0, push.StateSending)}}}}
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	it := &b.Items[0]
	slices.Sort(it.Devices)
	if it.Verdict != push.Unresolved || !slices.Equal(it.Devices, []string{"d1", "d3"}) {
		t.Errorf("got %v for %v, want %v for d1 and d3", it.Verdict, it.Devices, push.Unresolved)
	}
}

// Two records of one step share the devices of an item: one per provider, or
// one per hand-over. The intents of one do not concern the other, and none of a
// record's own devices stays open.
func TestIntentsOfAnotherRecordAreNotLost(t *testing.T) {
	held := func(d string) push.Row { return row("n", d, 0, push.StateHeld) }
	for _, tt := range []struct {
		why     string
		devices []string // of the record
		rows    []push.Row
		want    push.Verdict
		left    []string
	}{
		{"only the other record's are intended", []string{"d2"},
			[]push.Row{held("d1"), held("d2"), row("n", "d1", 1, push.StateSending)}, push.Undecided, []string{"d2"}},
		{"its own, before all of them were durable", []string{"d1", "d2"},
			[]push.Row{held("d1"), held("d2"), held("d3"), row("n", "d1", 1, push.StateSending), row("n", "d3", 1, push.StateSending)},
			push.Unresolved, []string{"d1", "d2"}},
		{"one of its own, and one has its result", []string{"d1", "d2"},
			[]push.Row{held("d1"), held("d2"), row("n", "d1", 1, push.StateSending), row("n", "d2", 1, push.StateSending), row("n", "d2", 1, push.StateFailed)},
			push.Unresolved, []string{"d1"}},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) {
			it.Confirm, it.Hops, it.HandedAs, it.Devices = true, 1, push.StateHeld, tt.devices
		})}}
		s := &stages.Dedupe{Filter: &filter{}, Ledger: &ledger{rows: map[string][]push.Row{"n": tt.rows}}}
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if it := &b.Items[0]; it.Verdict != tt.want || !slices.Equal(it.Devices, tt.left) {
			t.Errorf("%s: got %v for %v, want %v for %v", tt.why, it.Verdict, it.Devices, tt.want, tt.left)
		}
	}
}

// A message that names its device is sent to the environment that it names. A
// sandbox token is invalid in production, and FCM has no environments.
func TestNamedDevicesKeepTheirEnvironment(t *testing.T) {
	for _, row := range []struct {
		platform        push.Platform
		environment, to string
	}{
		{push.APNS, "", push.Production},
		{push.APNS, push.Production, push.Production},
		{push.APNS, push.Sandbox, push.Sandbox},
		{push.FCM, "", ""},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) {
			it.Device = push.Target{Platform: row.platform, Environment: row.environment, Token: "aa"}
		})}}
		if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		want := push.Route{Platform: row.platform, App: "shop", Environment: row.to}
		if d := b.Items[0].Deliveries[0]; d.Route != want || d.Device.Token != "aa" {
			t.Errorf("%s %q: got route %v to %q, want %v", row.platform, row.environment, d.Route, d.Device.Token, want)
		}
	}
}

// The order is a promise: see NewOrder. Metrics and logs use the names of the
// stages.
func TestOrder(t *testing.T) {
	names := func(s *stages.Superseded) (list []string) {
		for _, stage := range stages.NewOrder(&stages.Dedupe{}, nil, &stages.Accept{}, nil, s, &stages.Preferences{}, &stages.Devices{}, nil, &stages.Limits{}) {
			list = append(list, string(stage.Name()))
		}
		return list
	}
	want := []string{"dedupe", "accept", "superseded", "preferences", "devices", "limits"}
	if got := names(&stages.Superseded{}); !slices.Equal(got, want) {
		t.Errorf("got order %v, want %v", got, want)
	}
	if got := names(nil); !slices.Equal(got, slices.Delete(want, 2, 3)) {
		t.Errorf("got %v without superseded", got)
	}
}
