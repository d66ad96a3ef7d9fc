package gates_test

import (
	"strings"
	"testing"
	"time"
)

func TestGateHolds(t *testing.T) {
	close5 := func(g *gateway) { g.send(1, askedFor(5*time.Second)) }
	for _, row := range []struct {
		why  string
		do   func(*gateway)
		hold bool
	}{
		{"an open route never holds", func(*gateway) {}, false},
		{"a pause of 5 s stalls", close5, false},
		{"one of 6 s holds at once: it is known to last", func(g *gateway) { g.send(1, askedFor(6*time.Second)) }, true},
		{"1 + 2 s stall", func(g *gateway) { g.send(20, broken); g.pass(time.Second); g.send(1, broken) }, false},
		{"1 + 2 + 4 s hold", func(g *gateway) {
			g.send(20, broken)
			g.pass(time.Second)
			g.send(1, broken)
			g.pass(2 * time.Second)
			g.send(1, broken)
		}, true},
		{"a probe that is out is waited for", func(g *gateway) {
			g.send(1, askedFor(time.Minute))
			g.pass(time.Minute)
			g.admit(1)
			g.pass(1999 * time.Millisecond)
		}, false},
		{"but not for long", func(g *gateway) {
			g.send(1, askedFor(time.Minute))
			g.pass(time.Minute)
			g.admit(1)
			g.pass(2 * time.Second)
		}, true},
		{"it goes on: the rest follows in a moment", func(g *gateway) {
			g.send(1, askedFor(time.Minute))
			g.pass(time.Minute)
			g.send(1, good)
			g.admit(2)
			g.pass(2 * time.Second)
		}, false},
		{"short pauses add up", func(g *gateway) {
			close5(g)
			g.pass(5 * time.Second)
			g.send(1, good)
			g.pass(20 * time.Second)
			g.send(1, askedFor(time.Second))
		}, true},
		{"short: three of 2 s", func(g *gateway) {
			for range 3 {
				g.send(1, askedFor(2*time.Second))
				g.pass(2 * time.Second)
				g.send(1, good)
				g.pass(10 * time.Second)
			}
			g.send(20, broken)
		}, true},

		{"but not over more than a minute", func(g *gateway) {
			close5(g)
			g.pass(5 * time.Second)
			g.send(1, good)
			g.pass(61 * time.Second)
			g.send(1, askedFor(time.Second))
		}, false},
	} {
		o := gateOptions()
		if strings.HasPrefix(row.why, "short") || strings.HasPrefix(row.why, "but not over") {
			o.FullProbes = 1
			o.HaltPause, o.LongestPause = time.Second, time.Second
		}
		g := newGateway(t, o)
		row.do(g)
		if got := g.gate.Hold(g.now); got != row.hold {
			t.Errorf("%s: got Hold %v", row.why, got)
		}
	}
}

// Held records may return once the pause is over for every worker, whatever its
// jitter, and never before it is over for this one.
func TestGateRests(t *testing.T) {
	for _, jitter := range []time.Duration{0, 1, 2} { // in halves of the maximum
		o := gateOptions()
		o.Jitter = func(d time.Duration) time.Duration { return d * jitter / 2 }
		g := newGateway(t, o)
		want := func(d time.Duration) {
			t.Helper()
			until := time.Time{}
			if d > 0 {
				until = g.now.Add(d)
			}
			if got := g.gate.Rests(g.now); !got.Equal(until) {
				t.Errorf("after %v, with jitter %d/2: got rest until %v, want %v", g.now.Sub(startTime), jitter, got, until)
			}
			if closed := g.gate.Until(g.now); until.Before(closed) {
				t.Errorf("got rest for %v but closed for %v", d, closed.Sub(g.now))
			}
		}
		want(0)
		flying := g.admit(1)
		g.send(1, askedFor(40*time.Second))
		want(44 * time.Second)
		g.pass(10 * time.Second)
		want(34 * time.Second) // the same end
		g.answer(flying, askedFor(100*time.Second))
		want(105 * time.Second)
		g.pass(106 * time.Second)
		want(0) // probing: the end is unknown
		g.send(1, badKey)
		want(33 * time.Second)
	}
}

// What a halted route refuses, even for sends from before the halt, may return
// when the halt is over.
func TestGateSaysWhenAHaltIsOver(t *testing.T) {
	g := newGateway(t, gateOptions())
	flying := g.admit(3)
	first, late, apple := flying[:1], flying[1:2], flying[2:]
	g.answer(first, badKey)
	g.pass(10 * time.Second)
	g.answer(late, badKey)
	g.answer(apple, appleKey)
	for i, d := range []*sending{first[0], late[0], apple[0]} {
		if got := d.Result.Until.Time().Sub(startTime); got != 33*time.Second {
			t.Errorf("got delivery %d back %v after the first, want 33 s", i, got)
		}
	}
	other := newGateway(t, gateOptions())
	ds := other.admit(1)
	other.answer(ds, appleKey)
	if until := ds[0].Result.Until; !until.IsZero() {
		t.Errorf("Apple's key at Google stopped the route until %v", until)
	}
}
