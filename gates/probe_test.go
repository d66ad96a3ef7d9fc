package gates_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

func TestGateProbesInDoublingRounds(t *testing.T) {
	o := gateOptions()
	o.FullProbes = 8
	g := newGateway(t, o)
	g.send(20, broken)
	g.pass(999 * time.Millisecond)
	if n := len(g.admit(10)); n != 0 {
		t.Fatalf("got %d admitted during the pause, want 0", n)
	}
	g.pass(time.Millisecond)
	for _, round := range []int{1, 2, 4, 8} {
		first := g.admit(100)
		if len(first) != round || len(g.admit(100)) != 0 {
			t.Fatalf("got %d probes in the round of %d", len(first), round)
		}
		g.answer(first, good)
		g.pass(50 * time.Millisecond)
	}
	g.send(10_000, good)
	if err := testutil.GatherAndCompare(g.reg, strings.NewReader(`# HELP push_route_paused 1 while a route is paused or only probed.
# TYPE push_route_paused gauge
push_route_paused{route="apns/shop/production"} 0
push_route_paused{route="fcm/shop"} 0
`), "push_route_paused"); err != nil {
		t.Error(err)
	}
	if log := g.log.String(); !strings.Contains(log, `msg="route open again" route=fcm/shop paused=1.15s`) {
		t.Errorf("no word of the end of a pause of 1.15 s:\n%s", log)
	}
}

func TestGateOpensAlthoughSomeProbesFail(t *testing.T) {
	o := gateOptions()
	o.FullProbes = 16
	g := newGateway(t, o)
	g.send(20, broken)
	g.pass(time.Second)
	for _, round := range []int{1, 2, 4, 8, 16} { // an open gate tolerates 30 %
		ds := g.admit(round)
		bad := round * 3 / 10
		g.answer(ds[:bad], broken)
		g.answer(ds[bad:], good)
	}
	g.send(1000, good)
	if since, _, paused := g.gate.Paused(); paused || !since.IsZero() {
		t.Errorf("paused %t since %v although it is open", paused, since)
	}
}

// A ticket knows that its route was stopped since; that of no send knows no route.
func TestTicketClosed(t *testing.T) {
	g := newGateway(t, gateOptions())
	ticket := g.admit(1)[0].ticket
	if ticket.Closed(g.now) {
		t.Error("closed while the route is open")
	}
	g.send(20, broken)
	if !ticket.Closed(g.now) || ticket.Closed(g.now.Add(time.Second)) {
		t.Error("not closed just while the route is")
	}
	if (gates.Ticket{}).Closed(g.now) {
		t.Error("a ticket of no route is closed")
	}
	if got := g.gate.Patience(); got != 5*time.Second {
		t.Errorf("patience of %v, want that of the options, 5 s", got)
	}
}

func TestGateHaltsUntilAProbeSucceeds(t *testing.T) {
	g := newGateway(t, gateOptions())
	flying := g.admit(100)
	g.send(1, badKey)
	g.wantUntil(30 * time.Second)
	g.answer(flying, badKey) // the other sends in flight change nothing
	g.wantUntil(30 * time.Second)
	g.pass(30 * time.Second)
	g.send(1, badKey)
	g.wantUntil(time.Minute)
	if !strings.Contains(g.log.String(), "level=ERROR") || !strings.Contains(g.log.String(), "PERMISSION_DENIED") {
		t.Errorf("no alarm in the log:\n%s", &g.log)
	}
	g.pass(time.Minute)
	for n := 1; n <= 128; n *= 2 {
		g.send(n, good)
	}
	g.send(1000, good)
}

func TestGateProbesThatComeBackUnsent(t *testing.T) {
	g := newGateway(t, gateOptions())
	g.send(20, broken)
	g.pass(time.Second)
	for _, back := range []push.Result{unsent, expired, unfit} {
		probe := g.admit(5)
		g.answer(probe, back)
	}
	if n := len(g.admit(5)); n != 1 {
		t.Fatalf("got %d probes after one came back unsent, want 1", n)
	}
}

// What was let through before the pause frees no probe's place.
func TestGateProbesBesideWhatComesBackUnsent(t *testing.T) {
	g := newGateway(t, gateOptions())
	flying := g.admit(5)
	g.send(20, broken)
	g.pass(time.Second)
	probe := g.admit(1)
	g.answer(flying, unsent)
	if n := len(probe) + len(g.admit(5)); n != 1 {
		t.Fatalf("got %d probes in the first round, want 1", n)
	}
}

func TestGateProbeWithoutAnswer(t *testing.T) {
	o := gateOptions()
	g := newGateway(t, o)
	g.send(20, broken)
	g.pass(time.Second)
	probe := g.admit(1)
	g.pass(o.ProbeTimeout - time.Millisecond)
	if n := len(g.admit(1)); n != 0 || g.gate.Closed(g.now) {
		t.Fatal("the probe expired too soon")
	}
	g.pass(time.Millisecond)
	g.admit(1)
	g.wantUntil(2 * time.Second)
	g.pass(2 * time.Second)
	again := g.admit(1)
	g.answer(probe, good) // arrives after all, and no longer counts
	if n := len(g.admit(10)); n != 0 {
		t.Fatal("a late answer counted for the next round")
	}
	g.answer(again, good)
	if n := len(g.admit(10)); n != 2 {
		t.Fatalf("got %d probes in the second round", n)
	}
}

// A round that is not full waits for more to send, however long: what was answered is
// not taken for lost.
func TestGateProbesThatAreFewerThanTheRound(t *testing.T) {
	o := gateOptions()
	g := newGateway(t, o)
	g.send(20, broken)
	g.pass(time.Second)
	g.send(1, good)
	g.send(2, good)
	g.send(1, broken) // the first two of four
	g.send(1, good)
	g.pass(2 * o.ProbeTimeout)
	if n := len(g.admit(10)); n != 2 || g.gate.Closed(g.now) {
		t.Errorf("got %d probes, closed %t, want the other two", n, g.gate.Closed(g.now))
	}
}
