//go:build unix

package fleet

import (
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/crowd"
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// The accounting notices each way in which status rows, what was meant and the
// providers' ledger can disagree.
func TestCheckNotices(t *testing.T) {
	row := func(device string, step int16, s push.State, reason string) push.Row {
		return push.Row{ID: "n", Device: device, Step: step, State: s, Reason: reason}
	}
	yes := func(device string, n int) sim.Entry { return sim.Entry{ID: "n", Device: device, Accepted: n} }
	no := func(device string) sim.Entry { return sim.Entry{ID: "n", Device: device, Refused: 1} }
	reaches, expires := WantOf(crowd.Reaches), WantOf(crowd.Expires)
	for _, tt := range []struct {
		why    string
		want   Want
		rows   []push.Row
		pushes []sim.Entry
		lost   int
		says   string // of what is wrong; empty = nothing is
	}{
		{"delivered", reaches, []push.Row{row("a", 0, push.StateDelivered, "")}, []sim.Entry{yes("a", 1)}, 0, ""},
		{"delivered by the second attempt", reaches, []push.Row{row("a", 0, push.StateRetrying, "x"), row("a", 1, push.StateDelivered, "")}, []sim.Entry{yes("a", 1)}, 0, ""},
		{"repeated: counted elsewhere", reaches, []push.Row{row("a", 0, push.StateDelivered, "")}, []sim.Entry{yes("a", 2)}, 0, ""},
		{"no rows", reaches, nil, nil, 1, "no final outcome"},
		{"handed over and never picked up", reaches, []push.Row{row("a", 0, push.StateRetrying, "x")}, []sim.Entry{no("a")}, 1, "no final outcome"},
		{"one device of two is still open", reaches, []push.Row{row("a", 0, push.StateDelivered, ""), row("b", 0, push.StateRetrying, "x")},
			[]sim.Entry{yes("a", 1), no("b")}, 0, "still open"},
		{"failed where it was to reach", reaches, []push.Row{row("a", 0, push.StateFailed, "x")}, []sim.Entry{no("a")}, 0, "ended FAILED"},
		{"accepted, and the row says failed", Want{}, []push.Row{row("a", 0, push.StateFailed, "x")}, []sim.Entry{yes("a", 1)}, 0, "its row says otherwise"},
		{"delivered, and the provider refused", reaches, []push.Row{row("a", 0, push.StateDelivered, "")}, []sim.Entry{no("a")}, 0, "its row says otherwise"},
		{"delivered, and the provider never saw it", reaches, []push.Row{row("a", 0, push.StateDelivered, "")}, nil, 0, "never saw"},
		{"accepted for a device without a row", reaches, []push.Row{row("a", 0, push.StateDelivered, "")}, []sim.Entry{yes("a", 1), yes("b", 1)}, 0, "its row says otherwise"},
		{"expired", expires, []push.Row{row("", 0, push.StateExpired, "past_expires_at")}, nil, 0, ""},
		{"expired for another reason", expires, []push.Row{row("", 0, push.StateExpired, "past_greatest_age")}, nil, 0, "has not the reason"},
		{"tried although it had expired", expires, []push.Row{row("", 0, push.StateExpired, "past_expires_at")}, []sim.Entry{no("a")}, 0, "never to be sent"},
		{"another field is at fault", Want{Reason: push.WrongType, Detail: "title"}, []push.Row{row("", 0, push.StateDeadLettered, "wrong_type:body")}, nil, 0, "has not the detail"},
	} {
		r := &Report{Outcomes: map[push.Outcome]int{}, Reasons: map[string]int{}}
		r.check(&placed{Fact: Fact{Want: tt.want}, id: "n", origin: "push.main/0/0"}, tt.rows, tt.pushes)
		switch err := r.Err(); {
		case r.Lost != tt.lost:
			t.Errorf("%s: %d lost, want %d", tt.why, r.Lost, tt.lost)
		case (err != nil) != (tt.says != ""), err != nil && !strings.Contains(err.Error(), tt.says):
			t.Errorf("%s: %v, want something with %q", tt.why, err, tt.says)
		}
	}
}

// A user over its limit gets what it may; only its own UNKNOWN notifications
// leave open what it got.
func TestCheckCap(t *testing.T) {
	for _, tt := range []struct {
		why     string
		limited map[string]*spent
		wrong   int
	}{
		{"as many as allowed, and fewer where fewer came", map[string]*spent{"u1": {wanted: 3, delivered: 2}, "u2": {wanted: 1, delivered: 1}}, 0},
		{"one too many", map[string]*spent{"u1": {wanted: 3, delivered: 3}, "u2": {wanted: 1, delivered: 1}}, 1},
		{"too few: refused although under the cap", map[string]*spent{"u1": {wanted: 3, delivered: 2}, "u2": {wanted: 1}}, 1},
		{"what is missing is UNKNOWN", map[string]*spent{"u1": {wanted: 3, delivered: 1, unknown: 1}}, 0},
		{"more is missing than is UNKNOWN", map[string]*spent{"u1": {wanted: 3, unknown: 1}}, 1},
		{"too many, one of them UNKNOWN", map[string]*spent{"u1": {wanted: 5, delivered: 3, unknown: 1}}, 1},
		{"another user's UNKNOWN excuses nothing", map[string]*spent{"u1": {wanted: 3, delivered: 1}, "u2": {wanted: 3, delivered: 1, unknown: 1}}, 1},
	} {
		r := &Report{}
		if r.checkCap(2, tt.limited); r.Wrong != tt.wrong {
			t.Errorf("%s: %d wrong, want %d", tt.why, r.Wrong, tt.wrong)
		}
	}
}

// What a notification reached is held against the devices that the crowd says
// its user has, and not only against what the worker tried.
func TestCheckDevices(t *testing.T) {
	people, err := crowd.New(crowd.Default(App, 5000))
	if err != nil {
		t.Fatal(err)
	}
	f := &Fleet{people: people}
	user := 0
	for ; len(people.Targets(user).Live) < 3; user++ {
	}
	mine := f.targetsOf(&push.Message{App: App, UserID: people.User(user).ID})
	if mine == nil || len(mine.Live) != 3 {
		t.Fatalf("user %d has the targets %v", user, mine)
	}
	named := f.targetsOf(&push.Message{App: App, UserID: people.User(user).ID, Device: push.Target{Platform: push.APNS, Token: "0123"}})
	if named == nil || len(named.Live) != 1 || named.Live[0] != push.DeviceHash(push.APNS, "0123") {
		t.Fatalf("a message that names its device is for %v", named)
	}
	if other := f.targetsOf(&push.Message{App: "another", UserID: people.User(user).ID}); other != nil {
		t.Fatalf("another app's message is for %v", other)
	}
	for _, tt := range []struct {
		why     string
		targets *crowd.Targets
		reached int // of mine
		missed  int
		says    string
	}{
		{"all three", mine, 3, 0, ""},
		{"the third never", mine, 2, 1, "did not reach device " + mine.Live[2] + ", one of its user's 3"},
		{"nobody knows whom it is for", nil, 1, 0, ""},
		{"it named another one", named, 1, 1, "did not reach device " + named.Live[0]},
	} {
		var rows []push.Row
		var pushes []sim.Entry
		for _, d := range mine.Live[:tt.reached] {
			rows = append(rows, push.Row{ID: "n", Device: d, State: push.StateDelivered})
			pushes = append(pushes, sim.Entry{ID: "n", Device: d, Accepted: 1})
		}
		r := &Report{}
		r.checkDevices(&placed{Fact: Fact{Want: WantOf(crowd.Reaches)}, id: "n", targets: tt.targets}, rows, pushes, nil)
		if got := strings.Join(r.differences, "; "); r.Missed != tt.missed || (r.Wrong == 0) != (tt.says == "") || !strings.Contains(got, tt.says) {
			t.Errorf("%s: %d missed, want %d; says %q, want %q", tt.why, r.Missed, tt.missed, got, tt.says)
		}
	}
}

// A dead token beside a living device decides nothing: what becomes of the living
// one does, also where that is UNKNOWN.
func TestTheLivingDecide(t *testing.T) {
	half := &crowd.Targets{Live: []string{"a"}, Dead: []string{"x"}}
	row := func(device string, s push.State) push.Row {
		return push.Row{ID: "n", Device: device, State: s}
	}
	for _, tt := range []struct {
		why     string
		targets *crowd.Targets
		rows    []push.Row
		want    push.Outcome
	}{
		{"the living one is UNKNOWN", half, []push.Row{row("a", push.StateUnknown), row("x", push.StateFailed)}, push.OutcomeUnknown},
		{"the living one failed too", half, []push.Row{row("a", push.StateFailed), row("x", push.StateSuppressed)}, push.OutcomeFailed},
		{"nothing is known of it", half, []push.Row{row("x", push.StateFailed)}, push.OutcomeFailed},
		{"nobody lives", &crowd.Targets{Dead: []string{"x"}}, []push.Row{row("x", push.StateFailed)}, push.OutcomeFailed},
		{"nobody knows whom it is for", nil, []push.Row{row("a", push.StateUnknown), row("x", push.StateFailed)}, push.OutcomeFailed},
	} {
		n := &placed{targets: tt.targets}
		if got := n.livingOutcome(tt.rows, (&push.History{Rows: tt.rows}).Outcome()); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.why, got, tt.want)
		}
	}
}

func TestMetricsSum(t *testing.T) {
	m := Metrics{`a{lane="x",why="1"}`: 1, `a{lane="x",why="2"}`: 2, `a{lane="y"}`: 4, `ab`: 8, `b`: 16}
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"a", nil, 7}, {"a", []string{`lane="x"`}, 3}, {"a", []string{`lane="x"`, `why="2"`}, 2}, {"b", nil, 16}, {"c", nil, 0},
	} {
		if got := m.Sum(tt.name, tt.labels...); got != tt.want {
			t.Errorf("sum of %s %v is %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
}
