package pipeline

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Source hands out batches of one lane and commits what is done.
type Source interface {
	// Next blocks until there is a batch. Its items are decoded and admitted to their
	// tracker. After ctx ended, or after Close, it returns an error.
	Next(ctx context.Context) (*Batch, error)
	// Commit commits the watermark of every partition that moved since the last
	// call, synchronously. It never commits a fenced partition.
	Commit(ctx context.Context) error
}

// Stage takes a batch one step further. It gives a verdict to the items that it can
// decide and leaves the others undecided. It never adds, removes or reorders items,
// and does not keep b after it returns.
//
// An error means that the step could not be done at all (a store is down, ctx
// ended); it never says anything about an item. Then the stage is applied to the
// same batch again, so it must be repeatable. Several goroutines call Apply at
// once, but never with the same batch.
type Stage interface {
	Name() Step
	Apply(ctx context.Context, b *Batch) error
}

// Status is the status store as the pipeline writes it.
type Status interface {
	// Write returns nil when every row is durable. It makes its own attempts until
	// ctx ends, each with its own time-out, and does not write acknowledged rows
	// again. So ctx is no time-out: it ends when the rows are no longer wanted. After
	// an error any of them may be durable; writing them again changes nothing.
	Write(ctx context.Context, rows []push.Row) error
	// Bucket returns the bucket in which the store keeps an id. Rows of one bucket
	// that are written together make one batch.
	Bucket(id string) int64
}

// Ledger is the confirm read: it returns the status rows of ids, aligned with them.
// It returns only what is durable, and an error if it cannot tell.
type Ledger interface {
	Read(ctx context.Context, ids []string) ([][]push.Row, error)
}

// Recheck reads again what allows deliveries to be sent: their users' records, and
// what was accepted under their collapse keys since. It gives a verdict to those that
// may not be sent any more, Deferred to those that may be later: they go to the hold
// topic. It leaves the others undecided. An error means that
// nothing could be read; it never says anything about a delivery.
type Recheck interface {
	Recheck(ctx context.Context, ds []*Delivery) error
}

// Seen remembers finished ids, so that a second copy is confirmed before it is sent,
// also by the next owner of a partition.
type Seen interface {
	// Add returns nil when the store knows every id, or will answer "maybe" about it.
	// After an error neither is certain, and the caller repeats the call before it
	// lets go of the ids.
	Add(ctx context.Context, ids []string) error
}

// Latest knows which notification is the newest that a provider accepted under a collapse
// key, so that the retry of an older one with the same key is not sent any more. Only what
// another record carries on ever asks. It is best effort, and bounds its own time.
type Latest interface {
	// Begin is told of the items of a batch before any of them is sent, and any that was
	// read after them, and notes in each its Place. End is told once of each place above 0:
	// its item has ended; or it was given back, and nothing of its partition is in flight
	// any more. Both only count.
	Begin(items []Item)
	End(places []uint32)
	// HandedOver is told of items that another record carries on or may, before End.
	HandedOver(ctx context.Context, items []*Item) error
	// Accepted is told of items that end, before End, and notes those that a provider
	// has accepted: where an older one is in flight, or was handed over.
	Accepted(ctx context.Context, items []*Item) error
}

// Tokens says whether to believe providers that call tokens dead.
type Tokens interface {
	// Believe is told how many answers came about devices of an app, and to which messages
	// some of them called a token dead. It reports whether these tokens are to be removed.
	// If not, and nearly all are of one origin, fault is that; else nil. It keeps nothing of
	// the messages.
	Believe(app string, answers int, dead []*push.Message, now time.Time) (believe bool, fault *push.Culprit)
}

// Events gathers what push.events is to tell.
type Events interface {
	// Group begins an account of one group of endings in a lane.
	Group(lane string) Endings
}

// Endings is such an account, for one goroutine. Each ending is added; Count comes
// once the rows are durable, so that nothing is told that did not happen.
type Endings interface {
	// Add takes a row that the item is about to get.
	Add(it *Item, r *push.Row)
	// Duplicate takes an item that ends as a copy, without a row.
	Duplicate(it *Item)
	// Kind returns what an ending of an item is counted by. Equal kinds have the same
	// pointer for as long as they are used; it may be kept, and must not be changed.
	// state 0 = a copy. It takes no row apart from Add.
	Kind(it *Item, platform push.Platform, state push.State, reason string) *Kind
	// Count makes the account part of what is told. It keeps nothing of the items.
	Count(now time.Time)
}

// noEvents tells nothing.
type noEvents struct{}

func (noEvents) Group(string) Endings { return noEvents{} }
func (noEvents) Add(*Item, *push.Row) {}
func (noEvents) Duplicate(*Item)      {}
func (noEvents) Count(time.Time)      {}

func (noEvents) Kind(*Item, push.Platform, push.State, string) *Kind { return nil }
