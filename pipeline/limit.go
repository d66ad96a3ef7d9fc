package pipeline

import (
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// Limit is how fast a fleet sends, whatever the route, as far as one lane may. All
// methods may be called at once and must not block.
type Limit interface {
	// Take takes up to n sends, at least one, and returns how many may be made now. If none
	// may, again is when to ask next: not sooner.
	Take(now time.Time, n int) (got int, again time.Time)
	// Return gives back n of those that were taken last and are not made.
	Return(now time.Time, n int)
}

// unlimited is no limit.
type unlimited struct{}

func (unlimited) Take(_ time.Time, n int) (int, time.Time) { return n, time.Time{} }
func (unlimited) Return(time.Time, int)                    {}

// admit reports how many of ds, from the first on, may be sent now. If none may, it says
// when to ask again and what is lacking. The fleet's limit is asked first, for the gate
// counts what it has let through, and what the gate does not let through is returned.
func (p *Pipeline) admit(now time.Time, l *line, ds []*Delivery) (n int, again time.Time, lack gates.Lack) {
	allowed := 1 // a stopped route asks for nothing that others could use; it may just open, for a probe
	stopped := l.gate.Closed(now)
	if !stopped {
		if allowed, again = p.opt.Limit.Take(now, len(ds)); allowed == 0 {
			return 0, again, gates.LimitSpent
		}
	}
	ticket, n, again, lack := l.gate.Admit(now, l.charge, p.opt.Urgent, allowed)
	switch {
	case !stopped:
		p.opt.Limit.Return(now, allowed-n)
	case n > 0:
		p.opt.Limit.Take(now, n) // the probe goes out whatever is left
	}
	sent, deadline := push.At(now), UptimeAt(now.Add(p.opt.SendDeadline))
	for _, d := range ds[:n] {
		d.ticket, d.sentAt, d.Deadline = ticket, sent, deadline
	}
	return n, again, lack
}
