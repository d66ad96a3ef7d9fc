package pipeline

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// Delivery is one Item to one device. It belongs to the provider from Submit
// until it is handed to done, and to the pipeline before and after.
//
// An item that was decided as a whole ends with one delivery that has no device
// and carries the item's verdict.
type Delivery struct {
	Item *Item

	// Verdict ends a delivery before it is sent (its token is gone, no route), or
	// puts it off (Deferred); Undecided ones are sent. Reason is why.
	Verdict   push.Verdict
	kept      bool // its token is called dead, and is not to be removed
	inLine    bool // in a line that sends first what expires first; guarded by the mu of its turns
	inWindow  bool // holds a place of its route's window
	abandoned bool // has no durable end: the partition is leaving or the worker stops

	share   *share       // where it waits for its route; nil = it was decided before sending
	ticket  gates.Ticket // of its route's gate; set when it is handed to the provider
	Expires push.Instant // after this nothing may be sent; goes to the provider as its expiry too
	// Deadline is when an answer that has not come counts as AMBIGUOUS (or
	// NOT_ACCEPTED when nothing was written).
	Deadline Uptime

	Route  push.Route
	Device Device
	Result push.Result
	ending Ending // what Result means; set by decide, and by deadLetter if its record is too large
	Reason push.Reason

	rowAt     int64        // of its row, in Unix ns; 0 = it has none; its item has that of a whole one
	sentAt    push.Instant // when it was handed to the provider last
	rechecked Uptime       // when its user was read after it had waited; zero = as its item's
	confirmed Uptime       // when its rows were read after it had waited; zero = as its item's
	found     *push.Row    // the row by which it belongs to another record, if that is this one, read by a former owner
}

// Device is what a Delivery keeps of the device that it goes to: its route and its item have
// the rest. Where the user no longer has the device, only the hash is known.
type Device struct {
	Token string
	Hash  string // push.DeviceHash: names it in the status table and logs
}

// Lapsed reports whether d must not be sent now: its partition leaves, the worker
// cannot know whether it still owns the partition, or the route or an origin of the
// message has been stopped.
// Providers ask right before they write. They return a lapsed delivery unsent,
// with a Result of class Unsent: that never counts as an attempt.
func (d *Delivery) Lapsed(now time.Time) bool {
	return d.ticket.Closed(now) || d.unowned(now) || d.ticket.Quarantined(now, &d.Item.Message)
}

// unowned reports whether the partition of d leaves or may have another owner by
// now. A delivery that is committed before it is sent stays ours.
func (d *Delivery) unowned(now time.Time) bool {
	it := d.Item
	return it.batch != nil && !it.committed && it.batch.Tracker.Lapsed(now)
}

// Provider sends to one route. Submit may be called by many goroutines.
//
// Submit takes the deliveries over until each is handed to done, in groups of
// any size and any order, exactly once, with its Result set. Submit blocks
// while the route's queue for the lane is full, and returns an error only when
// ctx ends first: then the deliveries from index n on were not taken and get
// no Result. done is called on the provider's goroutines, must not block, and
// owns the slice only for the time of the call.
type Provider interface {
	Submit(ctx context.Context, ds []*Delivery, done func([]*Delivery)) (n int, err error)
}
