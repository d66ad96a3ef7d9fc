package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// LaneLog is an operator's access to a lane's own topic: what producers wrote, to be
// redriven. It is not safe for concurrent use.
type LaneLog struct {
	lane  string
	log   *Follower
	audit *Audit
}

// NewLaneLog returns the log of a lane, named by its own topic. It connects on the first
// call.
func NewLaneLog(o Options, lane string) (*LaneLog, error) {
	if lane == "" {
		return nil, errors.New("kafka lane log: no topic")
	}
	log, err := NewFollower(o, lane, nil)
	if err != nil {
		return nil, fmt.Errorf("kafka lane log: %w", err)
	}
	audit, err := newAudit(o, lane)
	if err != nil {
		log.Close()
		return nil, err
	}
	return &LaneLog{lane: lane, log: log, audit: audit}, nil
}

// Close closes the connections.
func (l *LaneLog) Close() {
	l.audit.Close()
	l.log.Close()
}

// Between returns what the topic holds now of the records from since on and before until,
// by their timestamps; the zero time = no bound.
func (l *LaneLog) Between(ctx context.Context, since, until time.Time) (Extent, error) {
	return l.log.Extent(ctx, since, until)
}

// Read calls each with the records of an extent, partition by partition and in order,
// until each returns an error. A record is what a dead letter of its first attempt would
// be: headers of ours mean nothing here, as producers can write them.
func (l *LaneLog) Read(ctx context.Context, e Extent, each func(*DeadLetter) error) error {
	return l.log.readExtent(ctx, e, func(r *kgo.Record) error { return each(firstRecord(r)) })
}

// firstRecord shares memory with the record.
func firstRecord(r *kgo.Record) *DeadLetter {
	d := &DeadLetter{Place: Place{r.Partition, r.Offset}, Topic: r.Topic, Timestamp: r.Timestamp, FirstSeen: r.Timestamp, Key: r.Key, Value: r.Value}
	d.Origin = d.String()
	for _, h := range r.Headers {
		if !strings.HasPrefix(h.Key, headerPrefix) {
			d.Headers = append(d.Headers, pipeline.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	return d
}

// Redrive is as that of a DLQ.
func (l *LaneLog) Redrive(ctx context.Context, records []*DeadLetter, tier string) error {
	return redrive(ctx, l.log.client, records, RetryTopic(l.lane, tier))
}

// Replay is what an operator has replayed of a lane, for its audit topic.
type Replay struct {
	At    time.Time // when it began; with By it identifies the replay
	By    string
	Since time.Time
	Until time.Time
	Sent  int  // so far
	Done  bool // it came to its end
}

// replayKeys is how keys of replays in the audit topic begin. Those of marks are places.
const replayKeys = "replay/"

// replayValue is the stored form of a Replay.
type replayValue struct {
	Version int       `json:"v"`
	What    string    `json:"what"`
	At      time.Time `json:"at"`
	By      string    `json:"by"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Sent    int       `json:"sent"`
	Done    bool      `json:"done"`
}

// Note records a replay in the lane's audit topic, in the place of what was noted of it
// before.
func (l *LaneLog) Note(ctx context.Context, r Replay) error {
	at := r.At.UTC().Truncate(time.Millisecond)
	value, err := json.Marshal(replayValue{Version: auditVersion, What: "replayed", At: at, By: r.By, Since: r.Since, Until: r.Until, Sent: r.Sent, Done: r.Done})
	if err != nil {
		return fmt.Errorf("noting a replay: %w", err)
	}
	return l.audit.produce(ctx, []*kgo.Record{{Topic: l.audit.topic, Key: []byte(replayKeys + at.Format(time.RFC3339Nano) + "/" + r.By), Value: value}})
}
