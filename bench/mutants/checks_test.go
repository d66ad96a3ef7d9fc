//go:build unix

package mutants

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/mutants/planted"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
)

// The checks of these worlds notice what they are there for, and nothing else.

var begun = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }

func sendOf(id, device string, ms int, reply string) invariants.Send {
	return invariants.Send{Pair: invariants.Pair{ID: id, Device: device}, At: at(ms), Provider: "apns", Reply: reply, Accepted: reply == "accepted"}
}

// What is accepted counts until its row is durable, and no longer.
func TestPeak(t *testing.T) {
	undone := sendOf("n3", "a", 15, "accepted")
	undone.Undone = true
	rows := map[string]int{"n1": 100, "n2": 20, "n4": 90} // when they became durable; n5 never has one
	most, when := peak([]invariants.Send{sendOf("n1", "a", 0, "accepted"), sendOf("n2", "a", 10, "accepted"), undone, sendOf("n3", "b", 16, "ServiceUnavailable"),
		sendOf("n4", "a", 30, "accepted"), sendOf("n5", "a", 95, "accepted")}, func(p invariants.Pair, _ time.Time) time.Time {
		if ms, ok := rows[p.ID]; ok {
			return at(ms)
		}
		return time.Time{}
	})
	if most != 2 || !when.Equal(at(10)) {
		t.Errorf("at most %d open, at %v; want 2 at %v", most, when, at(10))
	}
}

// A push is closed by the first row that is written after it, and by none before
// that but DELIVERED.
func TestRowAfter(t *testing.T) {
	s := &Store{durable: map[string]map[rowKey]time.Time{"n": {
		{"a", 0, push.StateRetrying}: at(10), {"a", 1, push.StateDelivered}: at(50), {"b", 0, push.StateRetrying}: at(10)}}}
	for _, tt := range []struct {
		why      string
		device   string
		accepted int
		want     time.Time
	}{
		{"accepted before any row", "a", 5, at(10)},
		{"the row of the attempt before says nothing", "a", 20, at(50)},
		{"accepted again after DELIVERED", "a", 60, at(60)},
		{"never a row after it", "b", 20, time.Time{}},
		{"another device's", "c", 0, time.Time{}},
	} {
		if got := s.rowAfter(invariants.Pair{ID: "n", Device: tt.device}, at(tt.accepted)); !got.Equal(tt.want) {
			t.Errorf("%s: %v, want %v", tt.why, got, tt.want)
		}
	}
}

// A retry waits for its tier and for what its provider asked; after a death
// nobody knows.
func TestHasty(t *testing.T) {
	const no = "ServiceUnavailable"
	tiers := []time.Duration{time.Second, 3 * time.Second}
	for _, tt := range []struct {
		why    string
		sends  []invariants.Send
		asked  time.Duration
		deaths []time.Time
		found  int
	}{
		{"in time", []invariants.Send{sendOf("n", "a", 0, no), sendOf("n", "a", 1000, no), sendOf("n", "a", 4000, no), sendOf("n", "a", 7000, "accepted")}, 0, nil, 0},
		{"too soon", []invariants.Send{sendOf("n", "a", 0, no), sendOf("n", "a", 999, "accepted")}, 0, nil, 1},
		{"the first tier every time", []invariants.Send{sendOf("n", "a", 0, no), sendOf("n", "a", 1000, no), sendOf("n", "a", 2000, no), sendOf("n", "a", 3000, "accepted")}, 0, nil, 2},
		{"sooner than the provider asked", []invariants.Send{sendOf("n", "a", 0, no), sendOf("n", "a", 1500, "accepted")}, 2 * time.Second, nil, 1},
		{"another device's", []invariants.Send{sendOf("n", "a", 0, no), sendOf("n", "b", 10, "accepted")}, 0, nil, 0},
		{"a worker died in between", []invariants.Send{sendOf("n", "a", 0, no), sendOf("n", "a", 100, "accepted")}, 0, []time.Time{at(50)}, 0},
		{"the last push of a dead worker is decided after its death", []invariants.Send{sendOf("n", "a", 100, no), sendOf("n", "a", 1095, "accepted")}, 0, []time.Time{at(50)}, 0},
		{"a worker died before", []invariants.Send{sendOf("n", "a", 300, no), sendOf("n", "a", 400, "accepted")}, 0, []time.Time{at(50)}, 1},
		{"what no retry is for", []invariants.Send{sendOf("n", "a", 0, "accepted"), sendOf("n", "a", 10, "accepted")}, 0, nil, 0},
	} {
		if got := hasty(tt.sends, tiers, map[string]time.Duration{"apns": tt.asked}, tt.deaths); len(got) != tt.found {
			t.Errorf("%s: %v, want %d", tt.why, got, tt.found)
		}
	}
}

// A push ends UNKNOWN only where an answer was lost, or a worker died between its
// intent and its end.
func TestUnexplained(t *testing.T) {
	const no = "ServiceUnavailable"
	lost := sendOf("n", "a", 20, "accepted")
	lost.Unheard = true
	others := lost
	others.Device = "b"
	for _, tt := range []struct {
		why    string
		end    unsure
		sends  []invariants.Send
		upsets []upset
		cut    bool
		found  int
	}{
		{"its answer was lost", unsure{intent: at(10), at: at(50)}, []invariants.Send{lost}, nil, false, 0},
		{"its answer was heard", unsure{intent: at(10), at: at(50)}, []invariants.Send{sendOf("n", "a", 20, no)}, nil, false, 1},
		{"another device's answer was lost", unsure{intent: at(10), at: at(50)}, []invariants.Send{sendOf("n", "a", 20, no), others}, nil, false, 1},
		{"a death in between", unsure{intent: at(10), at: at(50)}, []invariants.Send{sendOf("n", "a", 20, no)}, []upset{{at(30), at(30)}}, false, 0},
		{"a death before", unsure{intent: at(10), at: at(50)}, []invariants.Send{sendOf("n", "a", 20, no)}, []upset{{at(5), at(5)}}, false, 1},
		{"a death after", unsure{intent: at(10), at: at(50)}, []invariants.Send{sendOf("n", "a", 20, no)}, []upset{{at(60), at(60)}}, false, 1},
		{"a death that it had no intent at", unsure{at: at(50)}, []invariants.Send{sendOf("n", "a", 20, no)}, []upset{{at(30), at(30)}}, false, 1},
		{"never read, where connections were cut", unsure{at: at(50)}, nil, nil, true, 0},
		{"never read, where none was", unsure{at: at(50)}, nil, nil, false, 1},
		{"heard, where connections were cut", unsure{at: at(50)}, []invariants.Send{sendOf("n", "a", 20, no)}, nil, true, 1},
	} {
		tt.end.Pair = invariants.Pair{ID: "n", Device: "a"}
		if got := unexplained([]unsure{tt.end}, tt.sends, tt.upsets, tt.cut); len(got) != tt.found {
			t.Errorf("%s: %v, want %d", tt.why, got, tt.found)
		}
	}
}

// One UNKNOWN excuses the push that it is about, where the lane may have it: no
// other push, and no limit.
func TestOneUnknownExcusesItself(t *testing.T) {
	store, err := newStore(wiring.Layouts(configs.Default()))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	store.durable["n1"] = map[rowKey]time.Time{{"a", 0, push.StateUnknown}: at(0), {"b", 0, push.StateFailed}: at(0)}
	store.durable["n2"] = map[rowKey]time.Time{{"a", 0, push.StateFailed}: at(0)}
	lane := func(mode, ambiguous string) *world {
		c := configs.Default()
		c.Lanes[0].Mode, c.Lanes[0].Ambiguous = mode, ambiguous
		return &world{Fleet: &fleet.Fleet{Config: c}, store: store, report: &fleet.Report{Outcomes: map[push.Outcome]int{push.OutcomeUnknown: 1}}}
	}
	accepted := func(id, device string) string {
		return id + " (push.main/0/1) was accepted 1 times for device " + device + ", and its row says otherwise: [...]"
	}
	once := lane(atMostOnce, "resend")
	for _, tt := range []struct {
		why     string
		w       *world
		line    string
		excused bool
	}{
		{"its own push", once, accepted("n1", "a"), true},
		{"the same in a lane that drops what is ambiguous", lane(atLeastOnce, configs.AmbiguousUnknown), accepted("n1", "a"), true},
		{"the same in a lane that sends again", lane(atLeastOnce, "resend"), accepted("n1", "a"), false},
		{"another device of its notification", once, accepted("n1", "b"), false},
		{"another notification", once, accepted("n2", "a"), false},
		{"a limit", once, "user u1, who may get 9 of 12, got 8, and of 0 nobody knows", false},
		{"a device that was left out", once, "n1 (push.main/0/1) did not reach device c, one of its user's 3: [...]", false},
	} {
		if got := tt.w.excuseUnknown(classify([]string{tt.line})); (len(got) == 0) != tt.excused {
			t.Errorf("%s: %v, excused want %v", tt.why, got, tt.excused)
		}
	}
}

// The demo holds what was pushed against the devices that its users have, not
// against what its own worker says.
func TestTheDemoSeesAPlantedBug(t *testing.T) {
	dir := t.TempDir()
	if _, err := fleet.BuildTagged(t.Context(), dir, planted.Tag, false, "pushdemo"); err != nil {
		t.Fatal(err)
	}
	for bug, says := range map[string]string{
		"skip-third-device": "of the user's 3 devices",
		"ignore-opt-out":    "which suppressed, ended DELIVERED",
		"drop-last-record":  "not everything is accounted for",
		"":                  "Every record is accounted for",
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "pushdemo"), "-n", "2000")
		want := 0
		if bug != "" {
			cmd.Env = append(cmd.Environ(), envBug+"="+bug)
			want = 1
		}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != want || !strings.Contains(string(out), says) {
			t.Errorf("with %q the demo ends with %d, want %d and %q in\n%s", bug, got, want, says, out)
		}
	}
}
