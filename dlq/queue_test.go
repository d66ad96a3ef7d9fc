package dlq

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// queue is a lane's DLQ and its audit topic in memory. What a call does at last
// is decided by the test: a crash is an error before or after the work.
type queue struct {
	topic          string
	letters        []*kafka.DeadLetter
	sent           []*kafka.DeadLetter
	at             []time.Time // of sent
	marks          kafka.Marks
	sendCut, noted error
	unread         error // the marks cannot be read
	readCut        error // of Read, behind the last letter
	deleteCut      error
	deleting       context.Context // of the last Delete
	took           time.Duration   // of one Redrive
	after          func()          // each Redrive, Write and Delete
	open           int             // opened and not closed
}

const secret = "Your code is 4711"

func newQueue(n int) *queue {
	q := &queue{topic: "push.dlq", marks: make(kafka.Marks)}
	for i := range n {
		q.letters = append(q.letters, &kafka.DeadLetter{Place: kafka.Place{Offset: int64(i)}, Topic: "push.dlq", Timestamp: time.Now(), FirstSeen: time.Now(), Reason: "retries_used_up",
			Origin: "push/0/1", Key: []byte("u"), Value: fmt.Appendf(nil, `{"id":"n%d","app":"shop","user_id":"u","title":%q}`, i, secret)})
	}
	return q
}

func (q *queue) Topic() string { return q.topic }
func (q *queue) Close()        { q.open-- }

// extent is by partition what is picked of the letters, which must be in the
// order of their offsets.
func (q *queue) extent(picked func(*kafka.DeadLetter) bool) kafka.Extent {
	e := make(kafka.Extent)
	for _, d := range q.letters {
		if !picked(d) {
			continue
		}
		r, ok := e[d.Partition]
		if !ok {
			r.From = d.Offset
		}
		r.To = d.Offset + 1
		e[d.Partition] = r
	}
	return e
}

func (q *queue) Since(_ context.Context, since time.Time) (kafka.Extent, error) {
	return q.extent(func(d *kafka.DeadLetter) bool { return !d.Timestamp.Before(since) }), nil
}

func (q *queue) Before(_ context.Context, before time.Time) (kafka.Extent, error) {
	return q.extent(func(d *kafka.DeadLetter) bool { return before.IsZero() || d.Timestamp.Before(before) }), nil
}

func (q *queue) Read(_ context.Context, e kafka.Extent, each func(*kafka.DeadLetter) error) error {
	for _, d := range q.letters {
		if r, ok := e[d.Partition]; !ok || d.Offset < r.From || d.Offset >= r.To {
			continue
		}
		if err := each(d); err != nil {
			return err
		}
	}
	return q.readCut
}

func (q *queue) Redrive(ctx context.Context, letters []*kafka.DeadLetter, _ string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	time.Sleep(q.took)
	for _, d := range letters {
		q.sent, q.at = append(q.sent, d), append(q.at, time.Now())
	}
	if q.after != nil {
		q.after()
	}
	return q.sendCut
}

func (q *queue) Delete(ctx context.Context, e kafka.Extent) error {
	q.deleting = ctx
	if q.after != nil {
		q.after()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	deleted := make(kafka.Extent)
	for p, r := range e {
		if q.deleteCut == nil || p == 0 { // what fails is of the other partitions
			deleted[p] = r
		}
	}
	q.letters = slices.DeleteFunc(q.letters, func(d *kafka.DeadLetter) bool { return d.Offset < deleted[d.Partition].To })
	if q.deleteCut != nil {
		return &kafka.DeleteError{Deleted: deleted, Err: q.deleteCut}
	}
	return nil
}

// audit is the queue's audit topic.
type audit struct{ *queue }

func (a audit) Read(context.Context) (kafka.Marks, error) { return a.marks, a.unread }

func (a audit) Write(ctx context.Context, marks []kafka.Mark) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.noted != nil {
		return a.noted
	}
	for _, m := range marks {
		a.marks[m.Place] = m
	}
	return nil
}

// fleet is the DLQs of a fleet, by the lane's topic.
type fleet struct {
	queues  map[string]*queue
	missing []string // topics that are not there
	down    error    // nobody answers
	reached []string
}

func (f *fleet) Reach(_ context.Context, topics ...string) error {
	if f.down != nil {
		return f.down
	}
	f.reached = append(f.reached, topics...)
	for _, name := range topics {
		if slices.Contains(f.missing, name) {
			return fmt.Errorf("looking: %w", &kafka.MissingTopicsError{Topics: []string{name}})
		}
	}
	return nil
}

func (f *fleet) Open(topic string) (Queue, Audit, error) {
	q := f.queues[topic]
	q.open++
	return q, audit{q}, nil
}

// of is a fleet of one lane, "l", with this DLQ.
func of(q *queue) *Queues { return New(oneLane, &fleet{queues: map[string]*queue{"push": q}}) }

var oneLane = Config{Lanes: []Lane{{Name: "l", Topic: "push", GreatestAge: time.Hour}}, Tier: kafka.Tier{Name: "30s", Delay: 30 * time.Second}, StatusTTL: 30 * time.Minute}

// twoLanes is a fleet of a lane "l" with n dead letters and a lane "m" with one.
func twoLanes(n int) (*Queues, *fleet) {
	f := &fleet{queues: map[string]*queue{"push": newQueue(n), "more": newQueue(1)}}
	f.queues["more"].topic = "more.dlq"
	d := f.queues["more"].letters[0]
	d.Topic, d.Value = "more.dlq", []byte(`{"id":"m0","app":"bank","user_id":"u","sender_id":"s","title":"t"}`)
	c := oneLane
	c.Lanes = append(slices.Clone(c.Lanes), Lane{Name: "m", Topic: "more", GreatestAge: time.Hour})
	return New(c, f), f
}

// closed checks that nothing is left open.
func (f *fleet) closed(t *testing.T) {
	t.Helper()
	for topic, q := range f.queues {
		if q.open != 0 {
			t.Errorf("%s: %d are still open", topic, q.open)
		}
	}
}

func idsOf(letters []Letter) (ids []string) {
	for _, l := range letters {
		ids = append(ids, l.ID)
	}
	return ids
}
