package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Destination is where a hand-over goes.
type Destination uint8

// The destinations. Topic names are the business of package kafka:
// <topic>.retry.<tier>, <topic>.hold.<platform>, <topic>.dlq, push.feedback,
// push.events.
const (
	ToRetry Destination = iota
	ToDLQ
	ToFeedback
	ToHold
	ToEvents
)

// Handover is one record to produce because an item, or a device of it, does
// not end here.
type Handover struct {
	To   Destination
	Item *Item

	// ToRetry and ToHold: the new record's headers.
	Devices   []string // hashes of the devices still open
	Attempt   int
	Hops      int
	NotBefore time.Time
	State     push.State // of the row that is written once it is acknowledged

	// ToHold: whose topic.
	Platform push.Platform

	// ToDLQ: the providers of these devices, each once; none before the device
	// look-up.
	Providers []push.Platform

	// ToRetry, ToHold and ToDLQ: why.
	Reason push.Reason
	Detail string

	// ToFeedback: the dead token's device, since when the provider calls it dead
	// (zero = it did not say), and when it was handed to the provider. A token
	// that was registered after that is another one.
	Device    push.Device
	DeadSince time.Time
	SentAt    time.Time

	// ToEvents: the record's value; Item is nil.
	Event []byte
}

// PartlyError says which hand-overs of a call are not acknowledged, by their
// places in it, ascending. All others are.
type PartlyError struct {
	// Refused are too large for their topics, however often they are repeated.
	// None of them is for the DLQ, which gets as much of a record as it takes.
	Refused []int
	// Open may be there or not: the caller repeats them, and readers bear the
	// copies.
	Open []int
	Err  error // what the topic of one of them said
}

func (e *PartlyError) Error() string {
	return fmt.Sprintf("%d records are too large for their topics, %d are not acknowledged: %v", len(e.Refused), len(e.Open), e.Err)
}

func (e *PartlyError) Unwrap() error { return e.Err }

// Producer hands records over to Kafka. Produce returns nil when every record
// is acknowledged by all in-sync replicas. After a *PartlyError those that it
// does not name are; after any other error any of them may be there, and the
// caller repeats all.
type Producer interface {
	Produce(ctx context.Context, hs []Handover) error
}

// waits reports whether the row of a delivery must wait for a record that is
// produced before it: a hand-over, or the feedback on a dead token.
func (d *Delivery) waits() bool { return d.ending.HandsOver() || d.Result.Class == push.Gone }

// splitWaiting parts, in place, the deliveries that end here from those that
// wait for a record. An abandoned one waits for nothing.
func splitWaiting(group []*Delivery) (here, waiting []*Delivery) {
	here = group[:0]
	for _, d := range group {
		if d.waits() && !d.abandoned {
			waiting = append(waiting, d)
		} else {
			here = append(here, d)
		}
	}
	return here, waiting
}

// handovers are the records to produce before these deliveries may end: one for
// each way on that devices of one item take together, and one for each dead
// token. of has for each delivery the index of its record.
func handovers(group []*Delivery) (hs []Handover, of []int) {
	type way struct {
		item     *Item
		to       Destination
		platform push.Platform
	}
	ways := make(map[way]int, len(group)) // and where in hs its record is
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

// destination is where the record goes that d waits for.
func (d *Delivery) destination() Destination {
	switch {
	case d.Result.Class == push.Gone:
		return ToFeedback
	case d.whole() && d.ending.State == push.StateHeld:
		return ToRetry
	case d.whole():
		return ToDLQ
	case d.ending.State == push.StateRetrying:
		return ToRetry
	case d.ending.State == push.StateHeld:
		return ToHold
	}
	return ToDLQ
}

// handover is the record for d alone, as yet without it unless it is whole.
func (d *Delivery) handover() Handover {
	it := d.Item
	h := Handover{To: d.destination(), Item: it, Attempt: it.Attempt, Hops: it.Hops}
	switch {
	case h.To == ToFeedback:
		return Handover{To: ToFeedback, Item: it, Device: d.Device, DeadSince: d.Result.DeadSince, SentAt: d.sentAt, Reason: push.Reason(d.Result.Reason)}
	case d.whole():
		h.Reason, h.Detail, h.Devices = it.Reason, it.Detail, it.Devices
		if h.To == ToRetry {
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

// add makes the hand-over cover d too; the latest device says when it is due.
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
	if e.NotBefore.After(h.NotBefore) {
		h.NotBefore = e.NotBefore
	}
}
