// Package webhooks posts what senders want to know about the ends of their notifications
// to endpoints of theirs, signed as Standard Webhooks 1.0.0 say.
//
//	webhooks.go  START HERE: a Deliverer, and what it needs
//	deliver.go   one event: until the endpoint has it, or it is a dead letter
//	line.go      one sender: when its endpoint may be called again
//	post.go      one call: bounded in time and size, without redirects
//	address.go   which addresses may be called
//	sign.go      the signature
//	endpoints.go whose endpoints are where, by a file
//
// Each sender's events are in a topic of its own, so what is not delivered waits there, by
// its offset, and only a window of it is in memory. An event's offset may be committed when
// the endpoint has answered 2xx, or when it is a dead letter. Whoever dies before that
// leaves it to the next owner, with the same webhook-id.
package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Event is one record of a sender's topic.
type Event struct {
	Sender string
	Key    []byte
	Value  []byte    // what is posted
	At     time.Time // when it was made: its age runs from here
	// Leaving is closed when its partition is to leave. What is not delivered soon is
	// its next owner's.
	Leaving <-chan struct{}
}

// Reason says why an event is a dead letter.
type Reason string

// The reasons.
const (
	Refused    Reason = "refused"     // the endpoint took others, and this one not, many times
	Expired    Reason = "expired"     // it was not delivered in time
	Gone       Reason = "gone"        // the endpoint answered 410: it wants no more
	NoEndpoint Reason = "no_endpoint" // the file has named none for all this time
	Unreadable Reason = "unreadable"  // it is no JSON, or too large
)

// Reasons are all of them.
func Reasons() []Reason { return []Reason{Refused, Expired, Gone, NoEndpoint, Unreadable} }

// Dead keeps dead letters. It is safe for concurrent use.
type Dead interface {
	// Bury returns nil when the event is durable. detail is what the endpoint did last.
	Bury(ctx context.Context, e *Event, why Reason, detail string) error
}

// Poster makes one call. It is safe for concurrent use.
type Poster interface {
	Post(ctx context.Context, to *Endpoint, c *Call) Answer
}

// Options are what a Deliverer is made of. All are required.
type Options struct {
	Endpoints *Endpoints
	Poster    Poster
	Dead      Dead
	// Keep is how long it is tried to deliver an event, from when it was made. It is
	// tried once at least.
	Keep    time.Duration
	Metrics *Metrics
	Log     *slog.Logger
}

// MaxEvent is the largest event in bytes. A notification has at most 100 devices, so
// none comes near.
const MaxEvent = 512 << 10

const (
	// refusals is how often an endpoint that takes others may refuse an event.
	refusals = 8
	// longestRest is the longest that an endpoint is left alone, also if it asks for more.
	longestRest = time.Hour
)

// backoff is how long an endpoint that fails is left alone.
var backoff = push.Backoff{First: 2 * time.Second, Longest: 5 * time.Minute}

// errLeaving says that an event is given back.
var errLeaving = errors.New("the partition is leaving")

// Deliverer delivers events. It is safe for concurrent use.
type Deliverer struct {
	o Options

	mu    sync.Mutex
	lines map[string]*line // guarded by mu; by sender
}

// NewDeliverer makes a Deliverer.
func NewDeliverer(o Options) *Deliverer {
	return &Deliverer{o: o, lines: make(map[string]*line)}
}

// line is a sender's.
func (d *Deliverer) line(sender string) *line {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lines[sender]
	if l == nil {
		l = newLine()
		d.lines[sender] = l
	}
	return l
}
