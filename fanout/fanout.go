// Package fanout makes one message for many receivers into a record of a lane for each
// of them.
//
//	fanout.go    START HERE: the parts, and what they need
//	job.go       what is to be done: a Job, and its Chunks
//	encode.go    both as records, read strictly
//	id.go        the id of each receiver's notification
//	partition.go its partition
//	record.go    its record
//	expand.go    stage 1: a job becomes its first chunks
//	emit.go      stage 2: a chunk becomes records of the lane
//	flight.go    records on their way to Kafka, bounded
//	pace.go      when a chunk may begin, and how fast it goes
//	quota.go     how many receivers a sender may reach in a day
//	hold.go      chunks of paused messages, and of senders who have reached as many as they may,
//	             which wait in a topic of their own
//	notes.go     what is remembered: the first job of a message, chunks done, its state
//	memory.go, tables.go
//	             notes in this process, and in Cassandra
//
// All that is durable is in Kafka: the job, its chunks, the lane's records. A stage ends
// its record only when what follows from it is acknowledged, so whoever dies leaves open
// records, and the next owner does them again. That repeats records of the lane with the
// same ids (id.go), which the workers take for duplicates: each receiver is pushed once.
//
// Of a message at most Job.Open chunks are in Kafka at once: each one that ends
// produces the one that many places on. So a message of ten million keeps no other one
// waiting for longer than that many chunks take, and what is not in Kafka yet needs
// neither to be held nor to be thrown away when the message is paused or cancelled.
package fanout

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Topics of fan-outs.
const (
	// JobsTopic has jobs, keyed by their message's id.
	JobsTopic = "push.fanout"
	// DeadTopic has jobs and chunks that cannot be read, as they were.
	DeadTopic = "push.fanout.dlq"
)

// ChunksTopic is where a lane's chunks are. Each lane has a topic of its own, and so a
// group and a window of its own: partitions of one topic would be shared by lanes, as
// those of a group are spread without regard to what is in them, and a lane whose
// workers are behind would keep the chunks of another one waiting.
func ChunksTopic(lane string) string { return "push.fanout.chunks." + lane }

// HoldTopic is where chunks of a lane wait whose message is paused, or whose sender may
// reach no more receivers today.
func HoldTopic(lane string) string { return "push.fanout.hold." + lane }

// ErrNoAudience says that an Audience does not know who is in the job's: its chunks wait for
// a process that does, as long as the message lives.
var ErrNoAudience = errors.New("this process does not know who is in the message's audience")

// Audience knows who gets a message. It is safe for concurrent use.
type Audience interface {
	// Page returns members of one part of a job's audience that come behind after, at
	// most limit of them, in an order that does not change; "" = from the first one.
	// None and no error = there are no more. All of them are in the part's slices. The error
	// wraps ErrNoAudience if another process may know better.
	Page(ctx context.Context, j *Job, part int, after string, limit int) ([]Member, error)
}

// Member is one of an audience.
type Member struct {
	User string
	Pull bool // fetches messages, and is not pushed
	Left bool // is no member any more
	// Passed says that this one is no member, and is told of only as the place up to which
	// the audience was read.
	Passed bool
	Since  time.Time // when this one became a member; zero = always was
	// Priority is the highest that this one's notifications may have; 0 = the job's.
	Priority push.Priority
}

// Record is a record to produce. Key and Value must not change until it is acknowledged.
type Record struct {
	Topic       string
	Partition   int32 // below 0 = by the hash of the key
	Key, Value  []byte
	Traceparent string    // a header of this name; empty = none
	Admitted    bool      // it was counted under the limits of its sender
	At          time.Time // zero = now
}

// Producer writes records. It is safe for concurrent use.
type Producer interface {
	// Produce takes records and returns at once. done is called once for each of them,
	// and must not block: with nil when all in-sync replicas have it, or with an error,
	// after which it may have been written all the same.
	Produce(records []Record, done func(error))
}

// Inboxes keep messages for those members who fetch them. It is safe for concurrent use.
type Inboxes interface {
	// Keep keeps the message of a job, once for all of them: m is what each would get, but
	// for the receiver and the id. With nil it is durable; kept again it stays as it is.
	Keep(ctx context.Context, j *Job, m *push.Message) error
}

// Tokens are by what apps report clicks. It is safe for concurrent use.
type Tokens interface {
	// AppendClickToken appends the token of a user's notification, of this type and sender, as
	// up to MostToken bytes of base64url.
	AppendClickToken(out []byte, id, user, app, kind, sender string, accepted time.Time) []byte
}

// Backlog is how the workers of a lane stand, by partition of its topic.
type Backlog map[int32]Standing

// Sum is how many records they have not committed.
func (b Backlog) Sum() (behind int64) {
	for _, s := range b {
		behind += s.Behind
	}
	return behind
}

// Standing is how workers stand in a partition.
type Standing struct {
	Behind int64 // records that they have not committed
	Passed int64 // the offset that they have committed
}

// Lag tells how the workers of a lane stand. It is safe for concurrent use.
type Lag interface {
	Lag(ctx context.Context, lane string) (Backlog, error)
}

// Limits bound what a process has under way, and how fast it goes.
type Limits struct {
	Page    int           // members read at once, at least 1
	Records int           // on their way to Kafka at once, of one lane, at least Page
	Bytes   int           // the same in bytes, at least 1 MiB
	Lag     int64         // a chunk begins only while the lane's workers are behind by less
	LagTime time.Duration // and by less than they do in this time; 0 = whatever they do
	Rate    int           // records a second of one lane in this process; 0 = no bound
	Open    int           // chunks of a message in Kafka at once, at least 1
}

// Options are what the stages of one lane are made of. All but Quota and Tokens are required.
type Options struct {
	Audience Audience
	Producer Producer
	Notes    Notes
	Lag      Lag
	Quota    Quota  // of senders; nil = nobody has one
	Tokens   Tokens // nil = messages with click tokens wait for a process that signs them
	Limits   Limits
	Metrics  *Metrics
	Log      *slog.Logger
}

// errPaused says that a chunk's message is paused.
var errPaused = errors.New("the message is paused")
