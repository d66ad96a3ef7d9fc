package pipeline

import (
	"context"
	"fmt"
	"time"
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
	State     State // of the row that is written once it is acknowledged

	// ToHold: whose topic.
	Platform Platform

	// ToDLQ: the providers of these devices, each once; none before the device
	// look-up.
	Providers []Platform

	// ToRetry, ToHold and ToDLQ: why.
	Reason Reason
	Detail string

	// ToFeedback: the dead token's device, since when the provider calls it dead
	// (zero = it did not say), and when it was handed to the provider. A token
	// that was registered after that is another one.
	Device    Device
	DeadSince time.Time
	SentAt    time.Time

	// ToEvents: the record's value; Item is nil.
	Event []byte
}

// RefusedError says that some hand-overs are too large for their topic, however
// often they are repeated. All others of the call are acknowledged. It never
// names one to the DLQ, which gets as much of a record as it takes.
type RefusedError struct {
	Handovers []int // their places in the call, ascending; at least one
	Err       error // what the topic of one of them said
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%d records are too large for their topics: %v", len(e.Handovers), e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Producer hands records over to Kafka. Produce returns nil when every record
// is acknowledged by all in-sync replicas. After a *RefusedError those that it
// does not name are; after any other error any of them may be there: the caller
// repeats all, and readers bear the copies.
type Producer interface {
	Produce(ctx context.Context, hs []Handover) error
}
