package fanout

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Notes are what is remembered of fan-outs. It is safe for concurrent use. After an error
// what was to be noted may have been.
type Notes interface {
	// Begin notes a job, unless its message has one, and returns the one it has: what the
	// first one has pinned holds for all that come after it.
	Begin(ctx context.Context, j *Job) (*Job, error)
	// Ended reports whether a part of a message has ended.
	Ended(ctx context.Context, message uuid.UUID, part int) (bool, error)
	// End notes that a part has ended, in place of what was noted of it.
	End(ctx context.Context, message uuid.UUID, part int, c *Counts) error
	// State is the state of a message.
	State(ctx context.Context, message uuid.UUID) (State, error)
}

// Records are Notes as who asks and orders has them. It is safe for concurrent use.
type Records interface {
	// Look returns how far a message is; nil = it has not begun.
	Look(ctx context.Context, message uuid.UUID) (*Progress, error)
	// Ended reports whether a part of a message has ended.
	Ended(ctx context.Context, message uuid.UUID, part int) (bool, error)
	// Order sets the state of a message from that moment on: of two orders the later
	// one stands, and Cancelled for ever. A message need not have begun.
	Order(ctx context.Context, message uuid.UUID, s State, at time.Time) error
	// Messages are those to an audience of an app that have begun, and were accepted before a
	// place and not before oldest: the newest first, up to limit; fewer = there are no more.
	Messages(ctx context.Context, app string, to To, before Place, oldest time.Time, limit int) ([]Listed, error)
}

// State is what is to become of a message.
type State int8

// The states. The numbers are in the table.
const (
	Running   State = 0
	Paused    State = 1 // its chunks wait
	Cancelled State = 2 // they end as they are
)

// String is the state's name.
func (s State) String() string {
	switch s {
	case Paused:
		return "paused"
	case Cancelled:
		return "cancelled"
	}
	return "running"
}

// Progress is how far a message is.
type Progress struct {
	Job   *Job
	State State
	Ended []int // parts, in their order
	// Settled says that nothing more is counted: all parts have ended, or those that were
	// open when the message was cancelled.
	Settled bool
	Counts
}

// The reasons why an order about a message is of no use any more.
var (
	ErrCancelled = errors.New("it is cancelled, which cannot be undone")
	ErrEnded     = errors.New("it has ended: each receiver has a notification of its own in the lane")
)

// Over reports whether all parts have ended, and the message was not cancelled.
func (p *Progress) Over() bool { return p.State != Cancelled && len(p.Ended) == p.Job.To.Parts }

// Takes returns why an order is of no use any more; nil = it is of some.
func (p *Progress) Takes(s State) error {
	switch {
	case p.State == Cancelled && s != Cancelled:
		return ErrCancelled
	case p.Over():
		return ErrEnded
	}
	return nil
}

// settled reports whether nothing more is counted, by the parts that have ended: of each
// run of chunks, of which one brings the next, the last one has, or one that was stopped.
func (j *Job) settled(ended map[int]bool) bool {
	open := j.Open
	if open == 0 { // not pinned: each part by itself
		open = j.To.Parts
	}
	for part := range min(open, j.To.Parts) {
		for stopped := false; part < j.To.Parts && !stopped; part += open {
			known := false
			if stopped, known = ended[part]; !known {
				return false
			}
		}
	}
	return true
}

// orders are the latest orders of each state; zero = none.
type orders [Cancelled + 1]time.Time

// state is what they come to.
func (o *orders) state() State {
	switch {
	case !o[Cancelled].IsZero():
		return Cancelled
	case o[Paused].After(o[Running]):
		return Paused
	}
	return Running
}

// order adds one.
func (o *orders) order(s State, at time.Time) {
	if at.After(o[s]) {
		o[s] = at
	}
}
