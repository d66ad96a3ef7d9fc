package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// AuditTopic returns the topic that records what operators did with the dead
// letters of a lane, and who replayed what it had shed. It is compacted and has one partition, so that the last mark of
// a dead letter is known.
func AuditTopic(topic string) string { return DLQTopic(topic) + ".audit" }

// What an operator did with a dead letter.
const (
	Redriven  = "redriven"
	Dismissed = "dismissed"
)

// Mark says what an operator did with a dead letter.
type Mark struct {
	What string // Redriven or Dismissed
	At   time.Time
	By   string
	Redo int // with Redriven: which redrive it was, from 1

	// These identify the record: if the topic is created again, another record can
	// have the same place.
	Place
	Timestamp time.Time
	Origin    string
}

// MarkOf makes the mark of a dead letter.
func MarkOf(d *DeadLetter, what, by string, at time.Time) Mark {
	m := Mark{What: what, At: at, By: by, Place: d.Place, Timestamp: d.Timestamp, Origin: d.Origin}
	if what == Redriven {
		m.Redo = d.Redrive + 1
	}
	return m
}

// Marks holds the last mark of each place.
type Marks map[Place]Mark

// Of returns the mark of the dead letter, if it has one.
func (ms Marks) Of(d *DeadLetter) (Mark, bool) {
	m, ok := ms[d.Place]
	if !ok || m.Timestamp.UnixMilli() != d.Timestamp.UnixMilli() || m.Origin != d.Origin {
		return Mark{}, false
	}
	return m, true
}

// auditValue is the stored form of a mark; the key is its place.
type auditValue struct {
	Version     int       `json:"v"`
	What        string    `json:"what"`
	At          time.Time `json:"at"`
	By          string    `json:"by"`
	Redrive     int       `json:"redrive,omitempty"`
	TimestampMS int64     `json:"timestamp_ms"`
	Origin      string    `json:"origin"`
}

const auditVersion = 1

// Audit reads and writes the audit topic of a lane's DLQ. It is not safe for
// concurrent use.
type Audit struct {
	topic string
	log   *Follower
}

// newAudit returns the Audit of a lane, named by the lane's own topic. It connects
// on the first call.
func newAudit(o Options, lane string) (*Audit, error) {
	if lane == "" {
		return nil, errors.New("kafka audit: no topic")
	}
	log, err := NewFollower(o, AuditTopic(lane), nil)
	if err != nil {
		return nil, fmt.Errorf("kafka audit: %w", err)
	}
	return &Audit{topic: AuditTopic(lane), log: log}, nil
}

// Topic returns the audit topic's name.
func (a *Audit) Topic() string { return a.topic }

// Close closes the connections.
func (a *Audit) Close() { a.log.Close() }

// Read returns all marks. A mark that cannot be read is an error: if it were
// skipped, its dead letter would look untouched.
func (a *Audit) Read(ctx context.Context) (Marks, error) {
	e, err := a.log.Extent(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, err
	}
	marks := make(Marks)
	if err := a.log.readExtent(ctx, e, marks.apply); err != nil {
		return nil, err
	}
	return marks, nil
}

// apply applies one record of the audit topic.
func (ms Marks) apply(r *kgo.Record) error {
	at, err := ParsePlace(string(r.Key))
	if err != nil {
		return fmt.Errorf("audit record %s/%d/%d: key %w", r.Topic, r.Partition, r.Offset, err)
	}
	if at.Partition == replays {
		return nil // of no dead letter
	}
	if r.Value == nil {
		delete(ms, at)
		return nil
	}
	var v auditValue
	if err := json.Unmarshal(r.Value, &v); err != nil {
		return fmt.Errorf("audit record %s/%d/%d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	if v.Version != auditVersion {
		return fmt.Errorf("audit record %s/%d/%d has version %d, this program knows %d", r.Topic, r.Partition, r.Offset, v.Version, auditVersion)
	}
	ms[at] = Mark{What: v.What, At: v.At, By: v.By, Redo: v.Redrive, Place: at, Timestamp: time.UnixMilli(v.TimestampMS), Origin: v.Origin}
	return nil
}

// Write appends marks. It returns nil once all are acknowledged.
func (a *Audit) Write(ctx context.Context, marks []Mark) error {
	records := make([]*kgo.Record, len(marks))
	for i, m := range marks {
		value, err := json.Marshal(auditValue{Version: auditVersion, What: m.What, At: m.At.UTC().Truncate(time.Millisecond), By: m.By,
			Redrive: m.Redo, TimestampMS: m.Timestamp.UnixMilli(), Origin: m.Origin})
		if err != nil {
			return fmt.Errorf("marking %s: %w", m.Place, err)
		}
		records[i] = &kgo.Record{Topic: a.topic, Key: []byte(m.Place.String()), Value: value}
	}
	return a.produce(ctx, records)
}

// Forget removes the marks of places whose records have been deleted.
func (a *Audit) Forget(ctx context.Context, places []Place) error {
	records := make([]*kgo.Record, len(places))
	for i, p := range places {
		records[i] = &kgo.Record{Topic: a.topic, Key: []byte(p.String())}
	}
	return a.produce(ctx, records)
}

func (a *Audit) produce(ctx context.Context, records []*kgo.Record) error {
	if err := a.log.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("writing to %s: %w", a.topic, err)
	}
	return nil
}
