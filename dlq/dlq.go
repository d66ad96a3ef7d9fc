// Package dlq is what an operator does with dead letters: list, show, count,
// redrive, dismiss and delete them; and with what was shed: replay it. Nothing here prints or asks; commands,
// gateways and pages have their own output.
//
// Message text and tokens stay masked unless the caller asks for them, and
// nothing is changed unless the caller says so: what acts is a dry run by
// default.
package dlq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// Lane is what matters of a lane for its dead letters.
type Lane struct {
	Name  string
	Topic string // its own: DLQ, audit and retry topics are named after it
	// GreatestAge is how long after its first record a notification is not sent
	// any more. Above 0.
	GreatestAge time.Duration
}

// named reports whether s names the lane: by its name, its topic or its DLQ.
func (l *Lane) named(s string) bool {
	return s == l.Name || s == l.Topic || s == kafka.DLQTopic(l.Topic)
}

// Broker is where the DLQs are.
type Broker interface {
	// Reach returns an error if Kafka does not answer, and one that wraps a
	// *kafka.MissingTopicsError if one of the topics is not there.
	Reach(ctx context.Context, topics ...string) error
	// Open opens the DLQ of the lane with this topic, and its audit topic. Both
	// are used by one goroutine, and end when the Queue is closed.
	Open(topic string) (Queue, Audit, error)
}

// Queue is a lane's DLQ. Its methods are those of *kafka.DLQ.
type Queue interface {
	Topic() string
	Since(ctx context.Context, since time.Time) (kafka.Extent, error)
	Before(ctx context.Context, before time.Time) (kafka.Extent, error)
	Read(ctx context.Context, e kafka.Extent, each func(*kafka.DeadLetter) error) error
	Redrive(ctx context.Context, letters []*kafka.DeadLetter, tier string) error
	Delete(ctx context.Context, e kafka.Extent) error
	Close()
}

// Audit is the audit topic of a lane's DLQ. Its methods are those of
// *kafka.Audit.
type Audit interface {
	Read(ctx context.Context) (kafka.Marks, error)
	Write(ctx context.Context, marks []kafka.Mark) error
}

// finishTime is how long a step that has begun may go on after its context has
// ended.
const finishTime = 30 * time.Second

// Config is the fleet whose dead letters these are.
type Config struct {
	Lanes []Lane
	// Tier is the smallest retry tier: redriven records go through it.
	Tier kafka.Tier
	// StatusTTL is how long the status store keeps rows; 0 = for ever.
	StatusTTL time.Duration
	// Apps are the apps that the workers know; none = unknown, any app is
	// accepted.
	Apps []string
}

// Queues are the DLQs of a fleet's lanes. Every call opens what it needs and
// closes it again, so a Queues is safe for concurrent use if its Broker is. All
// its methods return ctx's error, wrapped, when ctx ends before they are done,
// and an *OptionError, before anything is done, if the options are invalid.
type Queues struct {
	config Config
	broker Broker
}

// New makes the Queues of a fleet. It does not connect before the first call.
func New(c Config, b Broker) *Queues { return &Queues{config: c, broker: b} }

// Lanes are the lanes of these names, in the order of the configuration; no
// names = all. A lane is known by its name, its topic or its DLQ. The error is
// an *OptionError.
func (q *Queues) Lanes(names ...string) ([]Lane, error) {
	var lanes []Lane
	known := make([]string, len(q.config.Lanes))
	for i, l := range q.config.Lanes {
		known[i] = l.Name
		if len(names) == 0 || slices.ContainsFunc(names, l.named) {
			lanes = append(lanes, l)
		}
	}
	for _, n := range names {
		if !slices.ContainsFunc(lanes, func(l Lane) bool { return l.named(n) }) {
			return nil, &OptionError{"lane", fmt.Sprintf("no lane or topic %q; the configuration has %s", n, strings.Join(known, ", "))}
		}
	}
	return lanes, nil
}

// opened is a lane's DLQ with the marks of its audit topic.
type opened struct {
	Queue
	audit Audit
	marks kafka.Marks
	lane  *Lane
}

// record is a dead letter of this DLQ.
func (o *opened) record(d *kafka.DeadLetter) record { return newRecord(o.lane, d, o.marks) }

// open opens a lane's DLQ and reads its marks. The DLQ must be there; the audit
// topic too, if something is to be noted in it.
func (q *Queues) open(ctx context.Context, lane *Lane, note bool) (_ *opened, err error) {
	audit := kafka.AuditTopic(lane.Topic)
	topics := []string{kafka.DLQTopic(lane.Topic)}
	if note {
		topics = append(topics, audit)
	}
	if err := q.broker.Reach(ctx, topics...); err != nil {
		return nil, err
	}
	o := &opened{lane: lane}
	if o.Queue, o.audit, err = q.broker.Open(lane.Topic); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	if !note {
		var missing *kafka.MissingTopicsError
		switch err := q.broker.Reach(ctx, audit); {
		case errors.As(err, &missing):
			return o, nil // nothing has been noted yet
		case err != nil:
			return nil, err
		}
	}
	if o.marks, err = o.audit.Read(ctx); err != nil {
		return nil, err
	}
	return o, nil
}

// Reading is the progress of reading a DLQ.
type Reading struct {
	Topic string
	Read  int
	Of    int64 // an upper estimate
}

// readingStep is how many records are read between two reports of progress.
const readingStep = 1000

// each calls f with the dead letters that pass the filter, lane by lane, until
// f returns an error. It reads what a lane's DLQ holds when it comes to that
// lane.
func (q *Queues) each(ctx context.Context, filter *Filter, progress func(Reading), f func(*record) error) error {
	if err := filter.Check(); err != nil {
		return err
	}
	lanes, err := q.Lanes(filter.Lanes...)
	if err != nil {
		return err
	}
	for i := range lanes {
		if err := q.eachOf(ctx, &lanes[i], filter, progress, f); err != nil {
			return err
		}
	}
	return nil
}

func (q *Queues) eachOf(ctx context.Context, lane *Lane, filter *Filter, progress func(Reading), f func(*record) error) error {
	o, err := q.open(ctx, lane, false)
	if err != nil {
		return err
	}
	defer o.Close()
	extent, err := o.Since(ctx, filter.Since)
	if err != nil {
		return err
	}
	read := 0
	return o.Read(ctx, extent, func(d *kafka.DeadLetter) error {
		if read++; read%readingStep == 0 && progress != nil {
			progress(Reading{o.Topic(), read, extent.Records()})
		}
		r := o.record(d)
		if !filter.passes(&r) {
			return nil
		}
		return f(&r)
	})
}
