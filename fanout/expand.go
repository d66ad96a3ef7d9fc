package fanout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Expander is stage 1: of each job it produces the first chunks. It is safe for
// concurrent use.
type Expander struct {
	Producer Producer
	Notes    Notes
	Inboxes  Inboxes // nil = nothing is kept for those who fetch messages
	Open     int     // chunks of a new message in Kafka at once, 1 to Slices
	Metrics  *Metrics
	Log      *slog.Logger
}

// Do does the work of one record of JobsTopic. With nil all that follows from it is
// durable; with an error it must be done again.
func (x *Expander) Do(ctx context.Context, w *Work) error {
	j, err := DecodeJob(w.Value)
	if err != nil {
		return dead(ctx, x.Producer, x.Metrics, x.Log, w, err)
	}
	j.Open = cmp.Or(j.Open, x.Open)
	// Who repeats a message has pinned what was right then: the first one stands.
	if j, err = x.Notes.Begin(ctx, j); err != nil {
		return err
	}
	state, err := x.Notes.State(ctx, j.Message)
	if err != nil {
		return err
	}
	if state != Cancelled {
		// Before the first chunk: once there are pushes, the message can be fetched, too.
		if err := x.keep(ctx, j); err != nil {
			return err
		}
	}
	if len(j.Sealed) > 0 {
		bare := *j
		j, bare.Sealed = &bare, nil
	}
	open := min(j.Open, j.To.Parts)
	chunks := make([]Record, 0, open)
	for part := range open {
		chunks = append(chunks, (&Chunk{Job: j, Part: part}).record(ChunksTopic(j.Lane)))
	}
	if err := put(ctx, x.Producer, chunks...); err != nil {
		return err
	}
	if state == Cancelled { // its chunks end at once, and note it: so it is known when nothing more comes
		x.Metrics.job("cancelled")
		return nil
	}
	x.Metrics.job("expanded")
	return nil
}

// keep keeps the message for those who fetch it, if anybody may.
func (x *Expander) keep(ctx context.Context, j *Job) error {
	switch {
	case x.Inboxes != nil:
	case len(j.Sealed) > 0: // who is pushed would find nothing
		return fmt.Errorf("message %s is to a confidential topic, and is read in inboxes, which this process does not keep (gateway.inbox): it waits for one that does", j.Message)
	default:
		return nil
	}
	m, err := j.message()
	if err == nil {
		err = x.Inboxes.Keep(ctx, j, m)
	}
	if err != nil {
		return fmt.Errorf("keeping a message for those who fetch it: %w", err)
	}
	return nil
}

// Work is a record to be worked on.
type Work struct {
	Topic      string
	Key, Value []byte
	// Leaving is closed when another process is to go on with the record: what is not
	// finished soon is better given back.
	Leaving <-chan struct{}
	At      time.Time // when it was written
}

// dead puts what cannot be read where operators find it. What a later release has
// written waits for that release.
func dead(ctx context.Context, p Producer, m *Metrics, log *slog.Logger, w *Work, why error) error {
	if errors.Is(why, ErrVersion) {
		return why
	}
	log.Error("a record of a fan-out cannot be read, and goes to "+DeadTopic, "topic", w.Topic, "bytes", len(w.Value), "error", why)
	if err := put(ctx, p, Record{Topic: DeadTopic, Partition: -1, Key: w.Key, Value: w.Value}); err != nil {
		return err
	}
	m.broken.Inc()
	return nil
}
