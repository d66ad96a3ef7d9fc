package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
)

// queue is a DLQ and its audit topic in memory. What a call does at last is
// decided by the test: a crash is an error before or after the work.
type queue struct {
	letters        []*kafka.DeadLetter
	sent           []*kafka.DeadLetter
	at             []time.Time // of sent
	marks          kafka.Marks
	sendCut, noted error
	took           time.Duration // of one Redrive
	after          func()        // each Redrive
}

func newQueue(n int) *queue {
	q := &queue{marks: make(kafka.Marks)}
	for i := range n {
		q.letters = append(q.letters, &kafka.DeadLetter{Place: kafka.Place{Offset: int64(i)}, Topic: "push.dlq", Timestamp: time.Now(), FirstSeen: time.Now(), Reason: "retries_used_up",
			Origin: "push/0/1", Value: fmt.Appendf(nil, `{"id":"n%d","app":"shop","user_id":"u","title":"t"}`, i)})
	}
	return q
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

func (q *queue) Write(ctx context.Context, marks []kafka.Mark) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if q.noted != nil {
		return q.noted
	}
	for _, m := range marks {
		q.marks[m.Place] = m
	}
	return nil
}

// run redrives all that is not marked.
func (q *queue) run(ctx context.Context, f redriveFlags) (redriveAnswer, error) {
	f.yes, f.list, f.maxRedrives = true, 3, 3
	r := &redriving{flags: &f, tier: kafka.Tier{Name: "30s", Delay: 30 * time.Second}, ttl: 30 * time.Minute, pace: newPacer(f.rate), show: newProgress(io.Discard),
		answer: redriveAnswer{Skipped: make(map[string]int)}}
	err := r.lane(ctx, q, q, func(ctx context.Context, each func(letter) error) error {
		for _, d := range q.letters {
			if err := each(newLetter(&configs.Lane{Name: "l", GreatestAge: time.Hour}, d, q.marks)); err != nil {
				return err
			}
		}
		return nil
	})
	return r.answer, err
}

// Never more in any second than the rate and one group, also when Kafka was
// slow for a while: what was held up is not caught up with.
func TestRedriveKeepsItsRate(t *testing.T) {
	for _, tt := range []struct {
		rate float64
		n    int
		took time.Duration
		want time.Duration // at least
		most time.Duration
	}{
		{100, 1000, 0, 9900 * time.Millisecond, 10 * time.Second},
		{0.5, 3, 0, 4 * time.Second, 4 * time.Second},
		{10_000, 20_000, 0, 1900 * time.Millisecond, 2 * time.Second},
		{100, 300, 200 * time.Millisecond, 11 * time.Second, 13 * time.Second}, // 60 groups of 200 ms
	} {
		synctest.Test(t, func(t *testing.T) {
			q, began := newQueue(tt.n), time.Now()
			q.took = tt.took
			v, err := q.run(t.Context(), redriveFlags{rate: tt.rate})
			if err != nil || v.Redriven != tt.n || len(q.sent) != tt.n || len(q.marks) != tt.n {
				t.Fatalf("%v: %d redriven, %d sent, %d marked: %v", tt.rate, v.Redriven, len(q.sent), len(q.marks), err)
			}
			if took := time.Since(began); took < tt.want || took > tt.most {
				t.Errorf("%d at %v/s took %v", tt.n, tt.rate, took)
			}
			group := newPacer(tt.rate).group
			first := 0
			for i, at := range q.at {
				for q.at[first].Before(at.Add(-time.Second + 1)) {
					first++
				}
				if in := i - first + 1; float64(in) > tt.rate+float64(group)+1 {
					t.Fatalf("%d in a second, at %v/s", in, tt.rate)
				}
			}
		})
	}
}

// A crash after the hand-over is acknowledged and before it is marked leaves
// records that are redriven again: none is marked that was not sent.
func TestRedriveMarksWhatWasSent(t *testing.T) {
	crash := errors.New("crashed")
	for _, tt := range []struct {
		why   string
		crash func(*queue)
	}{
		{"before the audit topic has it", func(q *queue) { q.noted = crash }},
		{"before Kafka has acknowledged", func(q *queue) { q.sendCut = crash }},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(12)
			tt.crash(q)
			v, err := q.run(t.Context(), redriveFlags{rate: 100}) // groups of 5
			if !errors.Is(err, crash) || !strings.Contains(err.Error(), "redriving them again is harmless") || v.Redriven != 0 || len(q.sent) != 5 || len(q.marks) != 0 {
				t.Fatalf("%s: %+v, %d sent, %d marked: %v", tt.why, v, len(q.sent), len(q.marks), err)
			}
			q.noted, q.sendCut = nil, nil
			v, err = q.run(t.Context(), redriveFlags{rate: 100})
			if err != nil || v.Redriven != 12 || len(q.sent) != 5+12 || len(q.marks) != 12 {
				t.Errorf("%s, repeated: %+v, %d sent, %d marked: %v", tt.why, v, len(q.sent), len(q.marks), err)
			}
			if v, err = q.run(t.Context(), redriveFlags{rate: 100}); err != nil || v.Redriven != 0 || len(q.sent) != 17 {
				t.Errorf("%s, a third time: %+v: %v", tt.why, v, err)
			}
		})
	}
}

// Ctrl-C ends it between two groups: what was sent is marked.
func TestRedriveIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100)
		ctx, interrupt := context.WithCancel(t.Context())
		q.after = func() {
			if len(q.sent) == 15 {
				interrupt()
			}
		}
		v, err := q.run(ctx, redriveFlags{rate: 100})
		if !errors.Is(err, context.Canceled) || v.Redriven != 15 || len(q.sent) != 15 || len(q.marks) != 15 {
			t.Errorf("%+v, %d sent, %d marked: %v", v, len(q.sent), len(q.marks), err)
		}
	})
}

// What the status store has forgotten cannot be confirmed any more.
func TestRedriveLeavesOutWhatCannotBeConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(3)
		q.letters[0].Timestamp = time.Now().Add(-30 * time.Minute)
		q.letters[1].Timestamp = time.Now().Add(-29*time.Minute - 31*time.Second) // is over when a worker takes it up
		q.letters[2].Timestamp = time.Now().Add(-29 * time.Minute)
		v, err := q.run(t.Context(), redriveFlags{rate: 100})
		if err != nil || v.Redriven != 1 || v.Skipped[skipForgotten] != 2 || q.sent[0].Offset != 2 {
			t.Errorf("%+v: %v", v, err)
		}
	})
}

func TestRedriveLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(20)
		q.letters[0].Redrive = 3 // left out: does not count
		v, err := q.run(t.Context(), redriveFlags{rate: 100, limit: 7})
		if !errors.Is(err, errEnough) || v.Redriven != 7 || len(q.marks) != 7 || q.sent[6].Offset != 7 || len(v.Letters) != 3 {
			t.Errorf("%+v, %d marked: %v", v, len(q.marks), err)
		}
	})
}
