package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Destination is where a hand-over goes.
type Destination uint8

// The destinations. Topic names are the business of package kafka:
// <topic>.retry.<tier>, <topic>.defer.<tier>, <topic>.hold.<platform>, <topic>.dlq,
// push.feedback, push.events, push.webhooks.<sender>, push.webhooks-dlq.
const (
	ToRetry Destination = iota
	ToDefer
	ToDLQ
	ToFeedback
	ToHold
	ToEvents
	ToEnds
	ToDeadEnds
)

// Handover is one record to produce: it carries on an item or some of its
// devices, or reports something about them.
type Handover struct {
	To   Destination
	Item *Item

	// ToRetry, ToDefer and ToHold: the new record's headers.
	Devices   []string // hashes of the devices that are still open
	Attempt   int
	Hops      int
	NotBefore time.Time
	State     push.State // of the row that is written after the acknowledgement

	// ToHold: the platform whose hold topic it is.
	Platform push.Platform

	// ToDLQ: the platforms of these devices, each once; empty if the devices have
	// not been looked up.
	Providers []push.Platform

	// ToRetry, ToDefer, ToHold and ToDLQ: why. ToDeadEnds: Detail is what was answered last.
	Reason push.Reason
	Detail string

	// ToFeedback: the device with the dead token, when the token died according
	// to the provider (zero = it did not say), and when the send was handed to
	// the provider. A token registered after that is a different one.
	Device    push.Device
	DeadSince time.Time
	SentAt    time.Time

	// ToEvents, ToEnds and ToDeadEnds: the record's value. With ToEvents, Item is nil, and
	// the record has a key if it is to be in order with others of that key.
	Event    []byte
	EventKey []byte

	// ToEnds and ToDeadEnds: when there was something to tell.
	EndedAt time.Time
}

// PartlyError says which hand-overs of a call are not acknowledged, by their
// indexes in it, ascending. All others are acknowledged.
type PartlyError struct {
	// Refused are too large for their topics; repeating them does not help. None
	// of them is for the DLQ: a record too large for it goes there without its value.
	Refused []int
	// Open may or may not have been written: the caller repeats them, and readers
	// tolerate copies.
	Open []int
	Err  error // the error of one of them
}

func (e *PartlyError) Error() string {
	return fmt.Sprintf("%d records are too large for their topics, %d are not acknowledged: %v", len(e.Refused), len(e.Open), e.Err)
}

func (e *PartlyError) Unwrap() error { return e.Err }

// Producer hands records over to Kafka. Produce returns nil when all in-sync
// replicas have acknowledged every record. After a *PartlyError, the records that
// it does not name are acknowledged. After any other error, each record may or
// may not have been written, and the caller repeats all of them.
type Producer interface {
	Produce(ctx context.Context, hs []Handover) error
}

// outlet is a destination that has a queue and workers of its own: a hold topic
// that does not accept records blocks neither the DLQ nor another platform's hold
// topic. All retry tiers of a lane are one outlet, all its deferral tiers another.
type outlet struct {
	to       Destination
	platform push.Platform // ToHold: the platform whose topic it is
}

// outlets returns a new queue for each outlet.
func (o *Options) outlets() map[outlet]*queue[*Delivery] {
	all := map[outlet]*queue[*Delivery]{
		{to: ToRetry}: newQueue[*Delivery](), {to: ToDefer}: newQueue[*Delivery](),
		{to: ToDLQ}: newQueue[*Delivery](), {to: ToFeedback}: newQueue[*Delivery](),
	}
	for r := range o.Routes {
		all[outlet{ToHold, r.Platform}] = newQueue[*Delivery]()
	}
	return all
}

// handOn puts each delivery into the queue of its outlet.
func (p *Pipeline) handOn(group []*Delivery) {
	by := make(map[outlet][]*Delivery, len(p.toHandOver))
	for _, d := range group {
		by[d.outlet()] = append(by[d.outlet()], d)
	}
	for o, ds := range by {
		p.toHandOver[o].put(ds...)
	}
}

// handOver produces the next records of deliveries: first the records are
// acknowledged, then the rows that say so become durable. A record that is too
// large for its topic goes to the DLQ instead.
func (p *Pipeline) handOver(ctx context.Context, group []*Delivery) {
	now := time.Now()
	opened := p.openKeys(ctx, group)
	refused, err := p.produce(ctx, group)
	if err == nil {
		var dead []*Delivery
		group, dead = deadLetter(group, refused)
		p.handOn(dead)
		err = p.record(ctx, group, now)
	}
	p.noteSends(group, now)
	<-opened
	p.end(group, err)
}

func (d *Delivery) outlet() outlet {
	o := outlet{to: d.destination()}
	if o.to == ToHold {
		o.platform = d.Route.Platform
	}
	return o
}

// destination returns where the record that d waits for goes.
func (d *Delivery) destination() Destination {
	switch {
	case d.removesToken():
		return ToFeedback
	case d.whole() && d.ending.State == push.StateHeld:
		return ToDefer
	case d.whole():
		return ToDLQ
	case d.ending.State == push.StateRetrying:
		return ToRetry
	case d.ending.State == push.StateHeld:
		return ToHold
	}
	return ToDLQ
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
			p.opt.Log.Warn("record too large for its topic, sending it to the DLQ", "lane", p.opt.Lane, "records", len(partly.Refused), "error", err)
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

// handovers returns the records to produce before these deliveries may end. The
// devices of an item that go to the same destination share one record; each dead
// token has its own. of holds, for each delivery, the index of its record in hs.
func handovers(group []*Delivery) (hs []Handover, of []int) {
	type way struct {
		item     *Item
		to       Destination
		platform push.Platform
	}
	ways := make(map[way]int, len(group)) // values are indexes in hs
	of = make([]int, len(group))
	for n, d := range group {
		h := d.handover()
		w := way{h.Item, h.To, h.Platform}
		i, known := ways[w]
		if !known || h.To == ToFeedback {
			i = len(hs)
			ways[w] = i
			hs = append(hs, h)
		}
		if h.To != ToFeedback && !d.whole() {
			hs[i].add(d)
		}
		of[n] = i
	}
	return hs, of
}

// handover returns the record that d waits for. Unless d is whole, it does not
// cover any device yet: see add.
func (d *Delivery) handover() Handover {
	it := d.Item
	h := Handover{To: d.destination(), Item: it, Attempt: it.Attempt, Hops: it.Hops}
	switch {
	case h.To == ToFeedback:
		dead := push.Device{Platform: d.Route.Platform, Environment: d.Route.Environment, App: d.Route.App, Token: d.Device.Token, Hash: d.Device.Hash}
		return Handover{To: ToFeedback, Item: it, Device: dead, DeadSince: d.Result.DeadSince.Time(), SentAt: d.sentAt.Time(), Reason: push.Reason(d.Result.Reason)}
	case d.whole():
		h.Reason, h.Detail, h.Devices = it.Reason, it.Detail, it.Devices
		if h.To == ToDefer {
			h.Hops, h.NotBefore = it.Hops+1, it.NotBefore
		}
	case h.To == ToRetry:
		h.Attempt = it.Attempt + 1
	case h.To == ToHold:
		h.Platform, h.Hops = d.Route.Platform, it.Hops+1
	}
	if h.To != ToDLQ {
		h.State = d.ending.State
	}
	return h
}

// add makes the hand-over cover d too. It is due when its latest device is.
func (h *Handover) add(d *Delivery) {
	e := d.ending
	h.Devices = append(h.Devices, d.Device.Hash)
	h.Reason = e.Reason
	if e.State == push.StateDeadLettered {
		h.Detail = d.Result.Reason // the provider's last word
		if !slices.Contains(h.Providers, d.Route.Platform) {
			h.Providers = append(h.Providers, d.Route.Platform)
		}
	}
	if due := e.NotBefore.Time(); due.After(h.NotBefore) {
		h.NotBefore = due
	}
}

// deadLetter sends the refused deliveries of a group to the DLQ, because their
// next record is too large, and separates them from the others. A delivery whose
// feedback on a dead token was refused stays: it ends here.
func deadLetter(group, refused []*Delivery) (stay, dead []*Delivery) {
	for _, d := range refused {
		if d.removesToken() {
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

// endHandingOver waits until everything is handed over. The DLQ ends last: it
// gets the records that are too large for the other outlets.
func (p *Pipeline) endHandingOver(workers map[outlet]*sync.WaitGroup) {
	dlq := outlet{to: ToDLQ}
	for o, q := range p.toHandOver {
		if o != dlq {
			q.close()
			workers[o].Wait()
		}
	}
	p.toHandOver[dlq].close()
	workers[dlq].Wait()
}
