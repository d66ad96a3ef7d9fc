package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// outlet is a destination that has a queue and workers of its own: a hold topic
// that does not accept records blocks neither the DLQ nor another platform's hold
// topic. All retry tiers of a lane are one outlet.
type outlet struct {
	to       Destination
	platform push.Platform // ToHold: the platform whose topic it is
}

// outlets returns a new queue for each outlet.
func (o *Options) outlets() map[outlet]*queue[*Delivery] {
	all := map[outlet]*queue[*Delivery]{
		{to: ToRetry}: newQueue[*Delivery](), {to: ToDLQ}: newQueue[*Delivery](), {to: ToFeedback}: newQueue[*Delivery](),
	}
	for r := range o.Routes {
		all[outlet{ToHold, r.Platform}] = newQueue[*Delivery]()
	}
	return all
}

func (d *Delivery) outlet() outlet {
	o := outlet{to: d.destination()}
	if o.to == ToHold {
		o.platform = d.Route.Platform
	}
	return o
}

// handOn puts each delivery into the queue of its outlet.
func (p *Pipeline) handOn(group []*Delivery) {
	by := make(map[outlet][]*Delivery, len(p.handing))
	for _, d := range group {
		by[d.outlet()] = append(by[d.outlet()], d)
	}
	for o, ds := range by {
		p.handing[o].put(ds...)
	}
}

// endHandingOver waits until everything is handed over. The DLQ ends last: it
// gets the records that are too large for the other outlets.
func (p *Pipeline) endHandingOver(workers map[outlet]*sync.WaitGroup) {
	dlq := outlet{to: ToDLQ}
	for o, q := range p.handing {
		if o != dlq {
			q.close()
			workers[o].Wait()
		}
	}
	p.handing[dlq].close()
	workers[dlq].Wait()
}

// produce returns once the records that the deliveries wait for are acknowledged,
// and an error only if ctx ended first. refused are the deliveries whose records
// are too large for their topics.
func (p *Pipeline) produce(ctx context.Context, group []*Delivery) (refused []*Delivery, err error) {
	hs, of := handovers(group)
	if len(hs) == 0 {
		return nil, nil
	}
	open, places := hs, make([]int, len(hs)) // not acknowledged so far, and their indexes in hs
	for i := range places {
		places[i] = i
	}
	tooLarge := make(map[int]bool) // by the index in hs
	err = p.repeat(ctx, StepHandOver, nil, func() error {
		p.delayClaims(open, time.Now())
		err := p.patiently(ctx, StepHandOver, nil, func(ctx context.Context) error { return p.opt.Producer.Produce(ctx, open) })
		partly, ok := errors.AsType[*PartlyError](err)
		if !ok {
			return err
		}
		for _, i := range partly.Refused {
			tooLarge[places[i]] = true
		}
		if len(partly.Refused) > 0 {
			p.opt.Log.Warn("what is too large to be handed over goes to the DLQ", "lane", p.opt.Lane, "records", len(partly.Refused), "error", err)
		}
		open, places = those(open, partly.Open), those(places, partly.Open)
		if len(open) == 0 {
			return nil
		}
		return err
	})
	for i, d := range group {
		if tooLarge[of[i]] {
			refused = append(refused, d)
		}
	}
	return refused, err
}

// those returns the values at the given indexes.
func those[T any](of []T, places []int) []T {
	values := make([]T, len(places))
	for i, place := range places {
		values[i] = of[place]
	}
	return values
}

// deadLetter sends the refused deliveries of a group to the DLQ, because their
// next record is too large, and separates them from the others. A delivery whose
// feedback on a dead token was refused stays: it ends here.
func deadLetter(group, refused []*Delivery) (stay, dead []*Delivery) {
	for _, d := range refused {
		if d.Result.Class == push.Gone {
			continue
		}
		d.ending = Ending{State: push.StateDeadLettered, Reason: push.TooLarge}
		if d.whole() {
			d.Item.Verdict, d.Item.Reason, d.Item.Detail = push.Dead, push.TooLarge, ""
		}
		dead = append(dead, d)
	}
	stay, _ = split(group, func(d *Delivery) bool { return slices.Contains(dead, d) })
	return stay, dead
}
