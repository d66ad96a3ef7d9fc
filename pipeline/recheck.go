package pipeline

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Recheck reads again what allows deliveries to be sent: their users' records, and
// what was accepted under their collapse keys since. It gives a verdict to those that
// may not be sent any more, and leaves the others undecided. An error means that
// nothing could be read; it never says anything about a delivery.
type Recheck interface {
	Recheck(ctx context.Context, ds []*Delivery) error
}

// allowed checks deliveries again whose user's record was read more than
// RecheckAfter ago: during minutes behind a paused route a user may have opted out,
// or the token may have got another owner. It returns those that may be sent, in
// place; the others end with their verdict. It waits for the store and never
// guesses; an error says that nothing is known, because ctx ended or some of the
// partitions leave.
func (p *Pipeline) allowed(ctx context.Context, ds []*Delivery) ([]*Delivery, error) {
	old := p.outdated(ds, time.Now())
	if len(old) == 0 {
		return ds, nil
	}
	var asked time.Time
	err := p.repeat(ctx, StepRecheck, func() bool { return p.anyGoesBack(old) }, func() error {
		asked = time.Now()
		return p.opt.Recheck.Recheck(ctx, old)
	})
	if err != nil {
		return ds, err
	}
	for _, d := range old {
		d.rechecked = asked
	}
	open := ds[:0]
	for _, d := range ds {
		if d.Verdict == push.Undecided {
			open = append(open, d)
		} else {
			p.answered.put(d)
		}
	}
	return open, nil
}

// outdated returns the deliveries whose user's record was read too long ago. Without
// a user there is nothing to read.
func (p *Pipeline) outdated(ds []*Delivery, now time.Time) (old []*Delivery) {
	if p.opt.Recheck == nil {
		return nil
	}
	for _, d := range ds {
		at := d.rechecked
		if at.IsZero() {
			at = d.Item.Read
		}
		if !at.IsZero() && now.Sub(at) > p.opt.RecheckAfter {
			old = append(old, d)
		}
	}
	return old
}

func (p *Pipeline) anyGoesBack(ds []*Delivery) bool {
	now := time.Now()
	for _, d := range ds {
		if p.goesBack(d, now) {
			return true
		}
	}
	return false
}
