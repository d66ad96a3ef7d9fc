package pipeline

import (
	"context"
	"fmt"
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
