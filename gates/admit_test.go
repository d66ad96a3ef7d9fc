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
		if _, n, _, lack := gate.Admit(g.now, c, 10); n != 0 || lack != gates.RouteStopped {
			t.Errorf("%v: closed gate: got %d admitted, lack %q", c, n, lack)
		}
		g.now = g.now.Add(time.Second)
		ticket, n, _, _ := gate.Admit(g.now, c, 10)
		if n != 1 {
			t.Fatalf("%v: got %d probes", c, n)
		}
		if _, n, _, lack := gate.Admit(g.now, c, 10); n != 0 || lack != gates.RouteStopped {
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
		ticket, n, _, _ := g.gate.Admit(g.now, c, 1)
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
