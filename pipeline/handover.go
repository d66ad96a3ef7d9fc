package pipeline

import (
	"context"
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

	// ToHold: whose topic.
	Platform Platform

	// ToDLQ: the providers of these devices, each once; none before the device
	// look-up.
	Providers []Platform

	// ToRetry, ToHold and ToDLQ: why.
	Reason Reason
	Detail string

	// ToFeedback: the dead token's device, and since when the provider calls it
	// dead (zero = it did not say).
	Device    Device
	DeadSince time.Time

	// ToEvents: the record's value; Item is nil.
	Event []byte
}

// Producer hands records over to Kafka. Produce returns nil when every record
// is acknowledged by all in-sync replicas. After an error any of them may be
// there: the caller repeats all, and readers bear the copies.
type Producer interface {
	Produce(ctx context.Context, hs []Handover) error
}
