package gates_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/gates"
)

// Another credential ends a halt at once, by a probe; what was sent before says nothing
// of it.
func TestAnotherCredentialEndsAHalt(t *testing.T) {
	g := newGateway(t, gateOptions())
	ds := g.admit(30)
	g.answer(ds[:1], badKey)
	if n := len(g.admit(1)); n != 0 {
		t.Fatal("sent while it is halted")
	}
	g.gate.Renewed(g.now)
	if n := len(g.admit(10)); n != 1 {
		t.Fatalf("%d admitted right after another credential, want the one probe", n)
	}
	g.answer(ds[1:], badKey) // sent with the former one
	if !g.gate.Until(g.now).IsZero() {
		t.Error("a refusal of the former credential halts the route")
	}
}

// Also where nothing was refused yet: what is under way was sent with the former one.
func TestRefusalsOfTheFormerCredentialHaltNothing(t *testing.T) {
	g := newGateway(t, gateOptions())
	ds := g.admit(5)
	g.gate.Renewed(g.now)
	g.answer(ds, badKey)
	g.send(100, good)
}

// One that is refused too halts for as long as the first did, not for twice as long.
func TestARefusedNewCredentialHaltsAnew(t *testing.T) {
	o := gateOptions()
	g := newGateway(t, o)
	g.send(1, badKey)
	for range 5 {
		g.gate.Renewed(g.now)
		probe := g.admit(1)
		g.answer(probe, badKey)
		g.wantUntil(o.HaltPause)
	}
}

// What the provider asked for holds, and so does a pause after errors.
func TestAnotherCredentialEndsNoOtherPause(t *testing.T) {
	for why, first := range map[string]func(g *gateway){
		"asked": func(g *gateway) { g.send(1, askedFor(10*time.Second)) },
		"asked before halt": func(g *gateway) {
			ds := g.admit(2)
			g.answer(ds[:1], askedFor(10*time.Second))
			g.answer(ds[1:], badKey)
		},
		"asked after halt": func(g *gateway) {
			ds := g.admit(2)
			g.answer(ds[:1], badKey)
			g.answer(ds[1:], askedFor(10*time.Second))
		},
		"errors": func(g *gateway) { g.send(20, broken) },
	} {
		g := newGateway(t, gateOptions())
		first(g)
		before := g.gate.Until(g.now)
		g.gate.Renewed(g.now)
		if got := g.gate.Until(g.now); got.IsZero() || why != "asked after halt" && !got.Equal(before) || got.Sub(g.now) < time.Second {
			t.Errorf("%s: paused for %v, before for %v", why, got.Sub(g.now), before.Sub(g.now))
		}
		if v := g.gate.View(g.now); v.Condition != gates.Paused {
			t.Errorf("%s: it is shown as %s, for a credential that is used no more", why, v.Condition)
		}
	}
}

// A halt that could not be told while the store was away is over for others, too: a
// worker that starts later has the new credential.
func TestAnotherCredentialTakesBackAHaltThatNobodyKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		b.set(func() { b.stuck = true })
		g, stop := workerOf(t, b)
		defer stop()
		g.sendNow(1, badKey)
		time.Sleep(2500 * time.Millisecond) // between two tries: one that is under way tells it still
		g.gate.Renewed(time.Now())
		b.set(func() { b.stuck = false })
		time.Sleep(2 * time.Second)
		late, stopLate := workerOf(t, b)
		defer stopLate()
		if left := late.pause(fcmShop); left != 0 {
			t.Errorf("a worker that starts after the change is halted for %v", left)
		}
	})
}

// Another worker's halt ends with the credential, and what another worker was asked for
// does not.
func TestAnotherCredentialAndWhatOthersTold(t *testing.T) {
	for _, c := range []struct {
		why   string
		heard []gates.Pause
		want  time.Duration
	}{
		{"halt", []gates.Pause{{Route: fcmShop, Reason: gates.PauseHalted, Left: time.Minute}}, 0},
		{"asked", []gates.Pause{{Route: fcmShop, Reason: gates.PauseAsked, Left: 20 * time.Second}}, 20 * time.Second},
		{"asked, then halt", []gates.Pause{{Route: fcmShop, Reason: gates.PauseAsked, Left: 20 * time.Second}, {Route: fcmShop, Reason: gates.PauseHalted, Left: time.Minute}}, 20 * time.Second},
		{"halt, then asked", []gates.Pause{{Route: fcmShop, Reason: gates.PauseHalted, Left: time.Minute}, {Route: fcmShop, Reason: gates.PauseAsked, Left: 20 * time.Second}}, 20 * time.Second},
	} {
		t.Run(c.why, func(t *testing.T) {
			g := newGateway(t, gateOptions())
			for _, p := range c.heard {
				g.gate.Hear(g.now, p)
			}
			g.gate.Renewed(g.now)
			g.wantUntil(c.want)
		})
	}
}
