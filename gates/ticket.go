package gates

import (
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Ticket records that a Gate let a send through: which gate, when, and what was
// paid. The zero Ticket belongs to a send that was not let through.
type Ticket struct {
	gate *Gate
	pass uint32 // of the gate, when it was given
	paid Charge
	// epoch is that of the route's rate under which it was given.
	epoch uint32
}

// Closed reports whether the route has been stopped since. It takes no lock.
func (t Ticket) Closed(now time.Time) bool { return t.gate != nil && t.gate.Closed(now) }

// Quarantined reports whether an origin of the message has been stopped on the route since.
func (t Ticket) Quarantined(now time.Time, m *push.Message) bool {
	if t.gate == nil {
		return false
	}
	_, why := t.gate.Quarantined(now, m)
	return why != ""
}

// Refund returns what was paid for an attempt that was not made. The next
// attempt pays again.
func (t Ticket) Refund() {
	if t.gate != nil {
		t.paid.refund(t.gate, 1)
	}
}

// Spare returns the DLQ token of a last try that did not end in the DLQ.
func (t Ticket) Spare() {
	if t.gate != nil && t.paid == LastTry {
		t.gate.DeadLetters.Return(1)
	}
}

// Answer is a ticket that comes back to its gate, and what became of its send.
type Answer struct {
	Ticket Ticket
	Result *push.Result // Until is set, where it halts its route
}

// Return gives tickets back to the gates that gave them, of any routes in any
// order, with the results of their sends; those without a result were not sent.
// Each ticket must come here exactly once, as soon as its send is back: a gate that
// hears of it only after a slow status write would let thousands through meanwhile.
// It keeps nothing of answers. A result that halts its route, or comes while it is
// stopped, gets to know until when: Until.
func Return(now time.Time, answers []Answer) {
	for from := 0; from < len(answers); {
		g, to := answers[from].Ticket.gate, from+1
		for to < len(answers) && answers[to].Ticket.gate == g {
			to++
		}
		if g != nil {
			g.takeBack(now, answers[from:to])
		}
		from = to
	}
}
