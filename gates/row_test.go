package gates_test

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// over is a result as it came over a connection.
func over(conn uint32, r push.Result) push.Result {
	r.Conn = conn
	return r
}

// ended is the result of what was on a connection that ended.
func ended(conn uint32) push.Result {
	return push.Result{Class: push.Again, Scope: push.ScopeConnection, Certainty: push.Ambiguous, Reason: string(push.ConnectionLost), Conn: conn, Ended: true}
}

func TestSomeBadAnswersInARowCloseARouteAtALowRate(t *testing.T) {
	type answers []push.Result
	times := func(n int, r push.Result) (rs answers) {
		for range n {
			rs = append(rs, r)
		}
		return rs
	}
	join := func(all ...answers) (rs answers) {
		for _, part := range all {
			rs = append(rs, part...)
		}
		return rs
	}
	bad := func(conns ...uint32) (rs answers) {
		for _, c := range conns {
			rs = append(rs, over(c, broken))
		}
		return rs
	}
	for _, row := range []struct {
		why     string
		answers answers
		apart   time.Duration // between them
		closes  bool          // with the last of them
	}{
		{"four", bad(1, 2, 1, 2), time.Second, false},
		{"five", bad(1, 2, 1, 2, 1), time.Second, true},
		{"five within a day", bad(1, 2, 1, 2, 1), 5 * time.Hour, true},
		{"the fifth over a second connection", bad(1, 1, 1, 1, 2), time.Second, true},
		{"twelve over one connection", times(12, over(1, broken)), time.Second, false},
		{"the thirteenth over another", join(times(12, over(1, broken)), bad(2)), time.Second, true},
		{"one that went well in between", join(bad(1, 2, 1, 2), times(1, over(1, good)), bad(1, 2, 1, 2)), time.Second, false},
		{"five after one that went well", join(bad(1, 2, 1, 2), times(1, over(1, good)), bad(1, 2, 1, 2, 1)), time.Second, true},
		{"a message at fault: the provider works", join(bad(1, 2, 1, 2), times(1, over(1, refused)), bad(2)), time.Second, false},
		{"a dead token: the provider works", join(bad(1, 2, 1, 2), times(1, over(1, gone)), bad(2)), time.Second, false},
		{"what was not sent is between none", join(bad(1, 2, 1, 2), times(3, unsent), times(3, expired), times(3, unfit), bad(2)), time.Second, true},
		{"the end of a connection with many on it counts once", join(bad(1, 1, 2), times(15, ended(3))), 0, false},
		{"and another end", join(bad(1, 1, 2), times(7, ended(3)), times(1, ended(4))), 0, true},
		{"ends of five connections", join(times(3, ended(1)), times(3, ended(2)), times(3, ended(3)), times(3, ended(4)), times(1, ended(5))), 0, true},
		{"of four", join(times(3, ended(1)), times(3, ended(2)), times(3, ended(3)), times(3, ended(4))), 0, false},
		{"over unknown connections", times(19, broken), 0, false},
		{"over unknown ones and one that is known", join(times(4, broken), bad(1), times(4, broken)), 0, false},
		{"over unknown ones and two that are known", join(times(3, broken), bad(1, 2)), 0, true},
		{"ends of unknown connections count once", join(times(9, ended(0)), bad(1, 2, 1)), 0, false},
		{"15 good ones do not hide them", join(times(14, over(1, good)), bad(1, 2, 1, 2, 1)), 0, true},
		{"with 15 others the share decides", join(times(15, over(1, good)), bad(1, 2, 1, 2, 1)), 0, false},
		{"the window forgets the others", join(times(100, over(1, good)), bad(1, 2, 1, 2, 1)), 3 * time.Second, true},
	} {
		g := newGateway(t, gateOptions())
		for i, r := range row.answers {
			if !g.gate.Until(g.now).IsZero() {
				t.Fatalf("%s: closed before answer %d of %d", row.why, i+1, len(row.answers))
			}
			g.send(1, r)
			if i < len(row.answers)-1 {
				g.pass(row.apart)
			}
		}
		until := g.gate.Until(g.now)
		_, why, _ := g.gate.Paused()
		if closed := !until.IsZero(); closed != row.closes || closed && (why != gates.PauseInARow || !until.Equal(g.now.Add(time.Second))) {
			t.Errorf("%s: closed until %v for %q, want closed %t", row.why, until, why, row.closes)
		}
	}
}

// Zero turns it off, and another number is counted to.
func TestFailuresInARowAreAsConfigured(t *testing.T) {
	for failures, closesAfter := range map[int]int{0: 20, 1: 2, 2: 2, 3: 3, 19: 19, 1000: 20} {
		o := gateOptions()
		o.Failures = failures
		g := newGateway(t, o)
		for n := 1; ; n++ {
			g.send(1, over(uint32(n), broken))
			if !g.gate.Until(g.now).IsZero() {
				if n != closesAfter {
					t.Errorf("with %d it closes after %d, want %d", failures, n, closesAfter)
				}
				break
			}
		}
	}
}

// A row begins anew after a pause, and what was sent before the pause is in none.
func TestARowBeginsAnewAfterAPause(t *testing.T) {
	o := gateOptions()
	o.FullProbes = 1
	g := newGateway(t, o)
	flying := g.admit(4)
	for n := range uint32(5) {
		g.send(1, over(1+n, broken))
	}
	g.wantUntil(time.Second)
	g.pass(time.Second)
	g.send(1, over(7, good))
	for i, d := range flying {
		d.Result = over(uint32(20+i), broken)
	}
	returned(g.now, flying)
	for n := range uint32(4) {
		g.send(1, over(10+n, broken))
	}
	g.wantUntil(0)
	g.send(1, over(20, broken))
	g.wantUntil(2 * time.Second)
}

// The default round of three, and what is sent when all is well again.
func TestGateProbesInRoundsFromThree(t *testing.T) {
	o := gateOptions()
	o.FirstProbes = gates.DefaultOptions().FirstProbes
	g := newGateway(t, o)
	g.send(20, broken)
	g.pass(time.Second)
	ds := g.admit(10)
	if len(ds) != 3 {
		t.Fatalf("got %d probes in the first round, want 3", len(ds))
	}
	g.answer(ds[:1], broken)
	g.wantUntil(0) // one of three is no outage
	g.answer(ds[1:2], broken)
	g.wantUntil(2 * time.Second)
	g.pass(2 * time.Second)
	for _, round := range []int{3, 6, 12, 24, 48, 96, 128} {
		ds := g.admit(1000)
		if len(ds) != round {
			t.Fatalf("got %d probes in the round of %d", len(ds), round)
		}
		g.answer(ds, good)
	}
	g.send(1000, good)
}
