package crowd_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/push"
)

// Every way in which a notification can miss one of its user's devices, or go to
// another, is noticed; what the crowd meant, or a row explains, is not.
func TestTargetsNotice(t *testing.T) {
	row := func(device string, s push.State) push.Row {
		return push.Row{ID: "n", Device: device, State: s}
	}
	yes := func(device string) crowd.Push { return crowd.Push{Device: device, Accepted: 1} }
	no := func(device string) crowd.Push { return crowd.Push{Device: device, Refused: 1} }
	const sent, failed, unknown = push.StateDelivered, push.StateFailed, push.StateUnknown
	reaches := []push.Outcome{push.OutcomeDelivered}
	limited := append(reaches, push.OutcomeSuppressed)
	once := append(reaches, push.OutcomeUnknown)
	everybody := func(string) bool { return true }
	for _, tt := range []struct {
		why    string
		t      crowd.Targets
		e      crowd.Ended
		missed string // devices, comma-separated
		wrong  string // part of what is said; empty = nothing is
	}{
		{"all three", crowd.Targets{Live: []string{"a", "b", "c"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("b", sent), row("c", sent)}, Pushes: []crowd.Push{yes("a"), yes("b"), yes("c")}}, "", ""},
		{"the third never", crowd.Targets{Live: []string{"a", "b", "c"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("b", sent)}, Pushes: []crowd.Push{yes("a"), yes("b")}}, "c", ""},
		{"a row alone reaches nobody", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("b", sent)}, Pushes: []crowd.Push{yes("a")}}, "b", ""},
		{"given up, which was not meant", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("b", failed)}, Pushes: []crowd.Push{yes("a"), no("b")}}, "b", ""},
		{"given up, which was meant", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: append(reaches, push.OutcomeFailed), Rows: []push.Row{row("a", sent), row("b", failed)}, Pushes: []crowd.Push{yes("a"), no("b")}}, "", ""},
		{"anything may be, but open", crowd.Targets{Live: []string{"a", "b", "c"}},
			crowd.Ended{Rows: []push.Row{row("a", sent), row("b", failed), row("c", push.StateRetrying)}, Pushes: []crowd.Push{yes("a"), no("b")}}, "c", ""},
		{"a limit is for the whole", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: limited, Rows: []push.Row{row("a", sent), row("b", push.StateSuppressed)}, Pushes: []crowd.Push{yes("a")}}, "b", ""},
		{"limited", crowd.Targets{Live: []string{"a", "b"}}, crowd.Ended{May: limited, Rows: []push.Row{row("", push.StateSuppressed)}}, "", ""},
		{"unknown, where that may be", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: once, Rows: []push.Row{row("a", sent), row("b", unknown)}, Pushes: []crowd.Push{yes("a")}}, "", ""},
		{"one that is unknown excuses itself and not the one without a row", crowd.Targets{Live: []string{"a", "b", "c"}},
			crowd.Ended{May: once, Rows: []push.Row{row("a", sent), row("b", unknown)}, Pushes: []crowd.Push{yes("a")}}, "c", ""},
		{"a death between two intents: none was sent", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: once, Rows: []push.Row{row("a", unknown)}}, "", ""},
		{"unknown, where it may not", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("b", unknown)}, Pushes: []crowd.Push{yes("a")}}, "b", ""},
		{"that some may be unknown excuses nobody", crowd.Targets{Live: []string{"a", "b"}},
			crowd.Ended{May: once, Rows: []push.Row{row("a", sent)}, Pushes: []crowd.Push{yes("a")}}, "b", ""},
		{"the dead one is refused", crowd.Targets{Live: []string{"a"}, Dead: []string{"x"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("x", failed)}, Pushes: []crowd.Push{yes("a"), no("x")}}, "", ""},
		{"the dead one was removed", crowd.Targets{Live: []string{"a"}, Dead: []string{"x"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent)}, Pushes: []crowd.Push{yes("a")}, Removed: everybody}, "", ""},
		{"the dead one was never tried", crowd.Targets{Live: []string{"a"}, Dead: []string{"x"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent)}, Pushes: []crowd.Push{yes("a")}}, "", "not known to be dead"},
		{"the dead one accepts", crowd.Targets{Live: []string{"a"}, Dead: []string{"x"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("x", sent)}, Pushes: []crowd.Push{yes("a"), yes("x")}}, "", "whose token is dead"},
		{"a stranger's device", crowd.Targets{Live: []string{"a"}},
			crowd.Ended{May: reaches, Rows: []push.Row{row("a", sent), row("z", sent)}, Pushes: []crowd.Push{yes("a"), yes("z")}}, "", "none of its user's"},
		{"a stranger's device was tried, and no other", crowd.Targets{},
			crowd.Ended{Rows: []push.Row{row("z", failed)}, Pushes: []crowd.Push{no("z")}}, "", "none of its user's"},
	} {
		if got := strings.Join(tt.t.Missed(&tt.e), ","); got != tt.missed {
			t.Errorf("%s: %q are missed, want %q", tt.why, got, tt.missed)
		}
		if got := strings.Join(tt.t.Wrong(&tt.e), "; "); (got == "") != (tt.wrong == "") || !strings.Contains(got, tt.wrong) {
			t.Errorf("%s: wrong is %q, want %q", tt.why, got, tt.wrong)
		}
	}
}

// The targets are the user's devices, each once, and users are found by their
// ids and by nothing else.
func TestTargetsOfUsers(t *testing.T) {
	c, err := crowd.New(crowd.Default("shop", 5000))
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[int]int{}
	for i := range c.Users {
		u, ts := c.User(i), c.Targets(i)
		all := append(slices.Clone(ts.Dead), ts.Live...)
		for _, d := range u.Devices {
			if !slices.Contains(all, d.Hash) {
				t.Fatalf("user %d: device %s is no target", i, d.Hash)
			}
		}
		if len(all) != len(u.Devices) || (u.Kind == crowd.DeadToken) != (len(all) > 0 && len(ts.Live) == 0) || (u.Kind == crowd.HalfDead) != (len(ts.Dead) > 0 && len(ts.Live) > 0) {
			t.Fatalf("user %d, %v with %d devices, has %d live and %d dead", i, u.Kind, len(u.Devices), len(ts.Live), len(ts.Dead))
		}
		sizes[len(ts.Live)]++
		if found, ok := c.Find(u.ID); !ok || found != i {
			t.Fatalf("%s is found as %d, %v", u.ID, found, ok)
		}
	}
	if sizes[3] == 0 {
		t.Error("nobody has three devices")
	}
	for _, id := range []string{"", "u", "u-1", "u01", "u500", "x7", "u7x"} {
		if i, ok := c.Find(id); ok {
			t.Errorf("%q is found as user %d", id, i)
		}
	}
}
