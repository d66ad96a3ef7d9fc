package fanout

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Tables is a session of Cassandra or Scylla, such as status.Session, in the keyspace
// that has the tables. It is safe for concurrent use.
type Tables interface {
	// Exec runs an idempotent statement.
	Exec(ctx context.Context, statement string, values ...any) error
	// Query reads each row into dest, which are pointers, and calls row after it.
	Query(ctx context.Context, statement string, values, dest []any, row func()) error
}

// TableNotes are notes in Cassandra. They need a session that reads and writes with
// LOCAL_QUORUM, or ONE where there is one replica: with less, an end that was noted may
// not be seen, and its chunk is emitted once more, with the same ids.
type TableNotes struct{ tables Tables }

// NewTableNotes returns notes in these tables. The session stays the caller's.
func NewTableNotes(tables Tables) *TableNotes { return &TableNotes{tables} }

// Check reads each table: an error says that one is missing or cannot be read.
func (n *TableNotes) Check(ctx context.Context) error {
	if _, err := n.job(ctx, uuid.UUID{}); err != nil {
		return err
	}
	if _, err := n.Ended(ctx, uuid.UUID{}, 0); err != nil {
		return err
	}
	if _, err := n.Messages(ctx, "", To{}, Place{At: time.UnixMilli(0)}, time.UnixMilli(0), 1); err != nil {
		return err
	}
	_, err := n.State(ctx, uuid.UUID{})
	return err
}

// Begin implements Notes. What it returns is also in the list of the audience's messages.
func (n *TableNotes) Begin(ctx context.Context, j *Job) (*Job, error) {
	first, err := n.begin(ctx, j)
	if err == nil {
		err = n.list(ctx, first) // also for one that had begun: who began it may have ended before this
	}
	if err != nil {
		return nil, err
	}
	return first, nil
}

func (n *TableNotes) begin(ctx context.Context, j *Job) (*Job, error) {
	if first, err := n.job(ctx, j.Message); first != nil || err != nil {
		return first, err
	}
	value, err := EncodeJob(j)
	if err != nil {
		return nil, err
	}
	// Whether it was applied is not asked: after an error it may have been, and what is
	// there in the end is read in any case.
	if err := n.tables.Exec(ctx, "INSERT INTO fanout_jobs (message, job) VALUES (?, ?) IF NOT EXISTS", j.Message.String(), value); err != nil {
		return nil, fmt.Errorf("noting a fan-out: %w", err)
	}
	first, err := n.job(ctx, j.Message)
	if err == nil && first == nil {
		err = fmt.Errorf("fan-out %s was noted and is not there", j.Message)
	}
	return first, err
}

// job reads the job of a message; nil = there is none.
func (n *TableNotes) job(ctx context.Context, message uuid.UUID) (*Job, error) {
	var value []byte
	err := n.tables.Query(ctx, "SELECT job FROM fanout_jobs WHERE message = ?", []any{message.String()}, []any{&value}, func() {})
	if err != nil {
		return nil, fmt.Errorf("reading a fan-out: %w", err)
	}
	if value == nil {
		return nil, nil
	}
	return DecodeJob(value)
}

// Ended implements Notes.
func (n *TableNotes) Ended(ctx context.Context, message uuid.UUID, part int) (ended bool, err error) {
	var emitted int64
	err = n.tables.Query(ctx, "SELECT emitted FROM fanout_chunks WHERE message = ? AND part = ?", []any{message.String(), int16(part)}, []any{&emitted}, func() { ended = true })
	if err != nil {
		return false, fmt.Errorf("reading a chunk of a fan-out: %w", err)
	}
	return ended, nil
}

// End implements Notes.
func (n *TableNotes) End(ctx context.Context, message uuid.UUID, part int, c *Counts) error {
	err := n.tables.Exec(ctx, "INSERT INTO fanout_chunks (message, part, emitted, skipped) VALUES (?, ?, ?, ?)", message.String(), int16(part), c.Emitted, c.numbers())
	if err != nil {
		return fmt.Errorf("noting a chunk of a fan-out: %w", err)
	}
	return nil
}

// stoppedAt is where the numbers of a part in the table say that it was stopped: 1 = so.
// Those of the reasons come before; releases that do not know the place do not read it.
const stoppedAt = 15

// numbers are the counts of skipped members as they are in the table.
func (c *Counts) numbers() []int64 {
	if !c.Stopped {
		return c.Skipped[:]
	}
	var all [stoppedAt + 1]int64
	copy(all[:], c.Skipped[:])
	all[stoppedAt] = 1
	return all[:]
}

// State implements Notes.
func (n *TableNotes) State(ctx context.Context, message uuid.UUID) (State, error) {
	var o orders
	var s int8
	var at time.Time
	err := n.tables.Query(ctx, "SELECT state, at FROM fanout_orders WHERE message = ?", []any{message.String()}, []any{&s, &at}, func() {
		if s >= 0 && int(s) < len(o) {
			o.order(State(s), at)
		}
	})
	if err != nil {
		return Running, fmt.Errorf("reading orders about a fan-out: %w", err)
	}
	return o.state(), nil
}

// Order implements Records. There is a row for each state, written with the order's time:
// one that comes late changes nothing, and Cancelled is never written over.
func (n *TableNotes) Order(ctx context.Context, message uuid.UUID, s State, at time.Time) error {
	err := n.tables.Exec(ctx, "INSERT INTO fanout_orders (message, state, at) VALUES (?, ?, ?) USING TIMESTAMP ?", message.String(), int8(s), at, at.UnixMicro())
	if err != nil {
		return fmt.Errorf("noting an order about a fan-out: %w", err)
	}
	return nil
}

// Look implements Records.
func (n *TableNotes) Look(ctx context.Context, message uuid.UUID) (*Progress, error) {
	j, err := n.job(ctx, message)
	if err != nil || j == nil {
		return nil, err
	}
	p := &Progress{Job: j}
	if p.State, err = n.State(ctx, message); err != nil {
		return nil, err
	}
	var part int16
	var emitted int64
	var skipped []int64
	ended := make(map[int]bool)
	err = n.tables.Query(ctx, "SELECT part, emitted, skipped FROM fanout_chunks WHERE message = ?", []any{message.String()}, []any{&part, &emitted, &skipped}, func() {
		c := Counts{Emitted: emitted}
		copy(c.Skipped[:], skipped)
		ended[int(part)] = len(skipped) > stoppedAt && skipped[stoppedAt] == 1
		p.Add(&c)
	})
	if err != nil {
		return nil, fmt.Errorf("reading the chunks of a fan-out: %w", err)
	}
	p.Ended, p.Settled = slices.Sorted(maps.Keys(ended)), j.settled(ended)
	return p, nil
}

var (
	_ Notes   = (*TableNotes)(nil)
	_ Records = (*TableNotes)(nil)
)
