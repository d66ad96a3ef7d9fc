package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
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
//
// It reads on behind what is deleted meanwhile, and behind batches that are too large to
// unpack: their records are dead, so workers have sent and shed none of them.
func (l *LaneLog) Read(ctx context.Context, e Extent, each func(*DeadLetter) error) error {
	for _, p := range slices.Sorted(maps.Keys(e)) {
		left := e[p]
		for left.From < left.To {
			err := l.log.read(ctx, p, left, func(r *kgo.Record) error {
				left.From = r.Offset + 1
				return each(firstRecord(r, time.Now()))
			})
			if err == nil {
				break
			}
			at, ok := l.behind(ctx, p, left.From, err)
			if !ok {
				return err
			}
			left.From = at
		}
	}
	return nil
}

// behind returns where to read on after an error that says that nothing can be read at an
// offset, now or later; ok is false after any other.
func (l *LaneLog) behind(ctx context.Context, partition int32, offset int64, err error) (at int64, ok bool) {
	if large, is := errors.AsType[*kgo.ErrDecompressTooLarge](err); is {
		return large.NextOffset, large.Partition == partition && large.NextOffset > offset
	}
	if !errors.Is(err, kerr.OffsetOutOfRange) {
		return 0, false
	}
	starts, err := l.log.StartOffsets(ctx)
	return starts[partition], err == nil && starts[partition] > offset
}

// firstRecord shares memory with the record. What is dead in a worker for the size of its
// key and headers has no value here, and its age is what a worker takes for it.
func firstRecord(r *kgo.Record, now time.Time) *DeadLetter {
	d := &DeadLetter{Place: Place{r.Partition, r.Offset}, Topic: r.Topic, Timestamp: r.Timestamp, FirstSeen: plausible(r.Timestamp, now), Key: r.Key}
	d.Origin = d.String()
	if envelope(r) <= maxEnvelope {
		d.Value = r.Value
	}
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
	At    time.Time // when it began, which identifies the replay
	By    string
	Since time.Time
	Until time.Time
	Sent  int  // so far
	Done  bool // it came to its end
}

// replays is the partition in keys of replays in the audit topic, whose offset is the
// time. No DLQ has that partition: versions that know no replays read a mark of a dead
// letter that is not there, where they refuse a key of another form and with it the topic.
const replays = math.MaxInt32

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
	key := Place{replays, max(0, r.At.UnixNano())}.String()
	return l.audit.produce(ctx, []*kgo.Record{{Topic: l.audit.topic, Key: []byte(key), Value: value}})
}
