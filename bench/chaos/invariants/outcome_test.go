package invariants

import (
	"testing"
)

// The derivation of an outcome follows the written precedence.
func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		why  string
		rows []Row
		want Outcome
		open int
	}{
		{"none", nil, NoRows, 0},
		{"DELIVERED beats a later step", []Row{row("n", "1", 0, Delivered, 0), row("n", "1", 2, Failed, 9)}, Outcome(Delivered), 0},
		{"the latest step decides", []Row{row("n", "1", 0, Failed, 5), row("n", "1", 1, Expired, 1)}, Outcome(Expired), 0},
		{"a later retry opens it", []Row{row("n", "1", 0, DeadLettered, 0), row("n", "1", 1, Retrying, 1)}, Open, 1},
		{"final beats open of the same step", []Row{row("n", "1", 1, Retrying, 0), row("n", "1", 1, Suppressed, 0)}, Outcome(Suppressed), 0},
		{"of two final ones precedence decides", []Row{row("n", "1", 1, Unknown, 9), row("n", "1", 1, Failed, 0)}, Outcome(Failed), 0},
		{"any device delivered", []Row{row("n", "1", 0, Failed, 0), row("n", "2", 0, Delivered, 0)}, Outcome(Delivered), 0},
		{"delivered, another is open", []Row{row("n", "1", 0, Held, 0), row("n", "2", 0, Delivered, 0)}, Outcome(Delivered), 1},
		{"open before failed", []Row{row("n", "1", 0, Failed, 0), row("n", "2", 0, Sending, 0)}, Open, 1},
		{"FAILED before EXPIRED before SUPPRESSED", []Row{row("n", "1", 0, Suppressed, 0), row("n", "2", 0, Expired, 0), row("n", "3", 0, Failed, 0)}, Outcome(Failed), 0},
		{"a row without device counts alone", []Row{row("n", "", 0, Suppressed, 0)}, Outcome(Suppressed), 0},
		{"and not beside devices", []Row{row("n", "", 0, Held, 0), row("n", "1", 1, Expired, 0)}, Outcome(Expired), 0},
	} {
		h := history{}
		for _, r := range tt.rows {
			h[r.Device] = append(h[r.Device], r)
		}
		if got, open := h.outcome(); got != tt.want || len(open) != tt.open {
			t.Errorf("%s: %s with %d open, want %s with %d", tt.why, got, len(open), tt.want, tt.open)
		}
	}
}

// A record may be committed when everything that is known of has a row that
// ends it or hands it over.
func TestSettled(t *testing.T) {
	for _, tt := range []struct {
		why     string
		rows    []Row
		devices []string
		intents bool
		want    bool
	}{
		{"nothing", nil, nil, true, false},
		{"ended", []Row{row("n", "1", 0, Failed, 0)}, nil, false, true},
		{"handed over", []Row{row("n", "1", 0, Held, 0)}, nil, false, true},
		{"ended as a whole", []Row{row("n", "", 0, Suppressed, 0)}, []string{"1", "2"}, false, true},
		{"a device that is known of has nothing", []Row{row("n", "1", 0, Delivered, 0)}, []string{"1", "2"}, false, false},
		{"both have", []Row{row("n", "1", 0, Delivered, 0), row("n", "2", 0, Retrying, 0)}, []string{"1", "2"}, false, true},
		{"an intent", []Row{row("n", "1", 0, Sending, 0)}, nil, false, false},
		{"an intent, where that is enough", []Row{row("n", "1", 0, Sending, 0)}, nil, true, true},
		{"one device ended, the other is intended", []Row{row("n", "1", 0, Delivered, 0), row("n", "2", 0, Sending, 0)}, nil, false, false},
	} {
		if got := Settled(tt.rows, tt.devices, tt.intents); got != tt.want {
			t.Errorf("%s: %v", tt.why, got)
		}
	}
}

// An intent is open until its step has a result, or a later one.
func TestIntents(t *testing.T) {
	for _, tt := range []struct {
		why  string
		rows []Row
		want int
	}{
		{"none", []Row{row("n", "1", 0, Delivered, 0)}, 0},
		{"one", []Row{row("n", "1", 0, Sending, 0)}, 1},
		{"it has ended", []Row{row("n", "1", 0, Sending, 0), row("n", "1", 0, Delivered, 1)}, 0},
		{"it was handed over", []Row{row("n", "1", 0, Sending, 0), row("n", "1", 0, Retrying, 1)}, 0},
		{"and intended again", []Row{row("n", "1", 0, Sending, 0), row("n", "1", 0, Retrying, 1), row("n", "1", 1, Sending, 2)}, 1},
		{"one of two devices", []Row{row("n", "1", 0, Sending, 0), row("n", "2", 0, Sending, 0), row("n", "2", 0, Failed, 1)}, 1},
	} {
		if got := Intents(tt.rows); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.why, got, tt.want)
		}
	}
}
