package gates_test

import (
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gates"
)

// A probe round admits only a part: what the rest had paid is refunded, and the
// limit is the route's, whatever they pay with.
func TestAdmitOfAPartTakesNoMoreThanItsTokens(t *testing.T) {
	for _, c := range []gates.Charge{gates.Retry, gates.LastTry} {
		o := gateOptions()
		o.Retries = gates.BudgetOptions{Floor: 1e-6, Burst: 100}
		o.DeadLetters = o.Retries
		g := newGateway(t, o)
		gate := g.gates.Of(fcmShop)
		g.send(100, broken) // closes the gate
		if _, n, _, lack := gate.Admit(g.now, c, false, 10); n != 0 || lack != gates.RouteStopped {
			t.Errorf("%v: closed gate: got %d admitted, lack %q", c, n, lack)
		}
		g.now = g.now.Add(time.Second)
		ticket, n, _, _ := gate.Admit(g.now, c, false, 10)
		if n != 1 {
			t.Fatalf("%v: got %d probes", c, n)
		}
		if _, n, _, lack := gate.Admit(g.now, c, false, 10); n != 0 || lack != gates.RouteStopped {
			t.Errorf("%v: probing: got %d admitted, lack %q", c, n, lack)
		}
		result := unsent
		gates.Return(g.now, []gates.Answer{{Ticket: ticket, Result: &result}})
		ticket.Refund()
		gates.Ticket{}.Spare() // the ticket that sendLater leaves
		if retries, _ := gate.Retries.Take(g.now, 1000); retries != 100 {
			t.Errorf("%v: got %d retry tokens, want 100", c, retries)
		}
		if dead, _ := gate.DeadLetters.Take(g.now, 1000); dead != 100 {
			t.Errorf("%v: got %d DLQ tokens, want 100", c, dead)
		}
	}
}

// Only a last try has paid for a dead letter, so nothing else can spare one.
func TestOnlyALastTrySparesADeadLetter(t *testing.T) {
	for c, want := range map[gates.Charge]int{gates.Free: 0, gates.Retry: 0, gates.LastTry: 1} {
		o := gateOptions()
		o.Retries = gates.BudgetOptions{Floor: 1e-6, Burst: 100}
		o.DeadLetters = o.Retries
		g := newGateway(t, o)
		ticket, n, _, _ := g.gate.Admit(g.now, c, false, 1)
		if n != 1 {
			t.Fatalf("%v: got %d admitted, want 1", c, n)
		}
		g.gate.DeadLetters.Take(g.now, 100)
		retries, _ := g.gate.Retries.Take(g.now, 100)
		ticket.Spare()
		if n, _ := g.gate.DeadLetters.Take(g.now, 100); n != want {
			t.Errorf("charge %d: got %d DLQ tokens back, want %d", c, n, want)
		}
		if n, _ := g.gate.Retries.Take(g.now, 100); n != 0 || (c == gates.Free) != (retries == 100) {
			t.Errorf("charge %d: got %d retry tokens back, want 0", c, n)
		}
	}
}

// What is not let through is told what is missing, and when to ask again.
func TestWhoCannotPayIsToldWhenToAskAgain(t *testing.T) {
	for _, row := range []struct {
		why           string
		charge        gates.Charge
		retries, dead int // taken before
		admitted      int
		again         time.Duration // 0 = not said
		lack          gates.Lack
	}{
		{"a first attempt pays nothing", gates.Free, 2000, 100, 5, 0, ""},
		{"a retry needs no DLQ token", gates.Retry, 0, 100, 5, 0, ""},
		{"a part of the retries, the others ask at once", gates.Retry, 1998, 0, 2, 0, ""},
		{"no retry: the floor earns one in 100 ms", gates.Retry, 2000, 0, 0, 100 * time.Millisecond, gates.NoRetryTokens},
		{"a last try is a retry too", gates.LastTry, 2000, 0, 0, 100 * time.Millisecond, gates.NoRetryTokens},
		{"no dead letter: the floor earns one in a second", gates.LastTry, 0, 100, 0, time.Second, gates.NoDeadLetters},
	} {
		g := newGateway(t, gateOptions())
		g.gate.Retries.Take(g.now, row.retries)
		g.gate.DeadLetters.Take(g.now, row.dead)
		_, n, again, lack := g.gate.Admit(g.now, row.charge, false, 5)
		if n != row.admitted || n == 0 && lack != row.lack {
			t.Errorf("%s: got %d admitted and lack %q, want %d and %q", row.why, n, lack, row.admitted, row.lack)
		}
		if after := again.Sub(g.now) - row.again; row.again == 0 != again.IsZero() || row.again > 0 && (after < 0 || after > time.Millisecond) {
			t.Errorf("%s: got to ask again at %v, want %v after now", row.why, again, row.again)
		}
		if left, _ := g.gate.Retries.Take(g.now, 2000); row.charge == gates.LastTry && left != 2000-row.retries {
			t.Errorf("%s: got %d retry tokens left, want %d", row.why, left, 2000-row.retries)
		}
	}
}

// A queue's tail is held until its tokens will be there.
func TestTurn(t *testing.T) {
	for _, row := range []struct {
		why           string
		retries, dead float64 // floors
		charge        gates.Charge
		ahead         int
		want          time.Duration
	}{
		{"a first attempt waits for no token", 10, 1, gates.Free, 1000, 0},
		{"nobody ahead", 10, 1, gates.Retry, 0, 0},
		{"10 a second", 10, 1, gates.Retry, 25, 2500 * time.Millisecond},
		{"a last try needs both: the DLQ's come slower", 10, 1, gates.LastTry, 25, 25 * time.Second},
		{"and here the retries'", 1, 10, gates.LastTry, 25, 25 * time.Second},
		{"a retry does not wait for the DLQ's", 10, 1e-6, gates.Retry, 1, 100 * time.Millisecond},
		{"an hour is the most", 10, 1, gates.Retry, 36_001, time.Hour},
		{"also where the sum would overflow", 1e-300, 1, gates.Retry, 1, time.Hour},
	} {
		o := gateOptions()
		o.Retries.Floor, o.DeadLetters.Floor = row.retries, row.dead
		if got := newGateway(t, o).gate.Turn(row.charge, row.ahead); got != row.want {
			t.Errorf("%s: got %v, want %v", row.why, got, row.want)
		}
	}
}
