package dlq

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/kafka"
)

// run redrives all that is not marked.
func (q *queue) run(ctx context.Context, o RedriveOptions) (Redriven, error) {
	o.Do, o.List, o.MaxRedrives = true, 3, 3
	return of(q).Redrive(ctx, o)
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
			v, err := q.run(t.Context(), RedriveOptions{Rate: tt.rate})
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
		sent  bool // all of the group, for sure
	}{
		{"before the audit topic has it", func(q *queue) { q.noted = crash }, true},
		{"before Kafka has acknowledged", func(q *queue) { q.sendCut = crash }, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(12)
			tt.crash(q)
			v, err := q.run(t.Context(), RedriveOptions{Rate: 100}) // groups of 5
			if !errors.Is(err, crash) || !strings.Contains(err.Error(), "redriving them again is harmless") || v.Redriven != 0 || len(q.sent) != 5 || len(q.marks) != 0 {
				t.Fatalf("%s: %+v, %d sent, %d marked: %v", tt.why, v, len(q.sent), len(q.marks), err)
			}
			if more, ok := errors.AsType[*UncountedError](err); !ok || more.Letters != 5 || more.Sent != tt.sent {
				t.Errorf("%s: %#v", tt.why, err)
			}
			q.noted, q.sendCut = nil, nil
			v, err = q.run(t.Context(), RedriveOptions{Rate: 100})
			if err != nil || v.Redriven != 12 || len(q.sent) != 5+12 || len(q.marks) != 12 {
				t.Errorf("%s, repeated: %+v, %d sent, %d marked: %v", tt.why, v, len(q.sent), len(q.marks), err)
			}
			if v, err = q.run(t.Context(), RedriveOptions{Rate: 100}); err != nil || v.Redriven != 0 || len(q.sent) != 17 {
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
		v, err := q.run(ctx, RedriveOptions{Rate: 100})
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
		v, err := q.run(t.Context(), RedriveOptions{Rate: 100})
		if err != nil || v.Redriven != 1 || v.Skipped[SkipForgotten] != 2 || q.sent[0].Offset != 2 {
			t.Errorf("%+v: %v", v, err)
		}
	})
}

func TestRedriveLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(20)
		q.letters[0].Redrive = 3 // left out: does not count
		v, err := q.run(t.Context(), RedriveOptions{Rate: 100, Limit: 7})
		if err != nil || v.Redriven != 7 || len(q.marks) != 7 || q.sent[6].Offset != 7 || len(v.Letters) != 3 {
			t.Errorf("%+v, %d marked: %v", v, len(q.marks), err)
		}
	})
}

// The limit is of all lanes together: whether it is reached within the first or
// just at its end, nothing of the next is sent.
func TestRedriveLimitIsOfAllLanes(t *testing.T) {
	for _, tt := range []struct{ limit, want int }{{2, 2}, {3, 3}, {4, 4}, {5, 4}} {
		for _, do := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				queues, f := twoLanes(3)
				v, err := queues.Redrive(t.Context(), RedriveOptions{Rate: 100, MaxRedrives: 3, Limit: tt.limit, Do: do})
				if err != nil || v.Redriven != tt.want || v.Matched != tt.want {
					t.Errorf("limit %d of 4, done %v: %+v: %v", tt.limit, do, v, err)
				}
				f.closed(t)
			})
		}
	}
}

// Reading breaks within a group: what is in it stays for the next redrive.
func TestRedriveSendsNothingMoreWhenReadingBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(8)
		q.readCut = errors.New("connection reset")
		v, err := q.run(t.Context(), RedriveOptions{Rate: 100}) // groups of 5
		if !errors.Is(err, q.readCut) || v.Redriven != 5 || len(q.sent) != 5 || len(q.marks) != 5 {
			t.Errorf("%+v, %d sent, %d marked: %v", v, len(q.sent), len(q.marks), err)
		}
		if more, ok := errors.AsType[*UncountedError](err); ok {
			t.Errorf("it says that %d more may have been sent", more.Letters)
		}
	})
}

// A dry run says what would be, and does nothing; a real one tells how far it
// is.
func TestRedriveDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues, f := twoLanes(12)
		told := 0
		o := RedriveOptions{Rate: 100, MaxRedrives: 3, List: 2, Progress: func(p Redriving) {
			if told++; p.Redriven != min(5*told, 12) && p.Redriven != 13 || p.LeftOut < 0 {
				t.Errorf("after group %d: %+v", told, p)
			}
		}}
		v, err := queues.Redrive(t.Context(), o)
		if err != nil || !v.DryRun || v.Matched != 13 || v.Redriven != 13 || len(v.Letters) != 2 || !slices.Equal(v.Topics, []string{"push.retry.30s", "more.retry.30s"}) || v.Delay != 30 {
			t.Errorf("%+v: %v", v, err)
		}
		for topic, q := range f.queues {
			if len(q.sent) != 0 || len(q.marks) != 0 {
				t.Errorf("%s: a dry run sent %d and marked %d", topic, len(q.sent), len(q.marks))
			}
		}
		if told != 0 {
			t.Errorf("a dry run told %d times how far it is", told)
		}
		o.Do, o.By = true, "me"
		if v, err = queues.Redrive(t.Context(), o); err != nil || v.DryRun || v.Redriven != 13 || told != 4 {
			t.Errorf("%+v, told %d times: %v", v, told, err)
		}
		if m := f.queues["more"].marks[kafka.Place{}]; m.What != kafka.Redriven || m.By != "me" || !m.At.Equal(time.Now()) {
			t.Errorf("%+v", m)
		}
		f.closed(t)
	})
}

// Every reason to leave a dead letter out, and what is the last moment to take
// it.
func TestRedriveSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for _, tt := range []struct {
			why, skip string
			maxAge    time.Duration
			change    func(*kafka.DeadLetter)
		}{
			{"ordinary", "", 0, func(*kafka.DeadLetter) {}},
			{"headers that cannot be read", SkipUnreadable, 0, func(d *kafka.DeadLetter) { d.Problem = errors.New("pf-hops") }},
			{"no value", SkipNoValue, 0, func(d *kafka.DeadLetter) { d.Value = nil }},
			{"no JSON", SkipUnusable, 0, func(d *kafka.DeadLetter) { d.Value = []byte(`{"id":`) }},
			{"an app that no worker has", SkipUnknownApp, 0, func(d *kafka.DeadLetter) { d.Value = []byte(`{"id":"n","app":"x","user_id":"u","title":"t"}`) }},
			{"expires when a worker takes it up", SkipExpired, 0, func(d *kafka.DeadLetter) { d.FirstSeen = now.Add(30*time.Second - time.Hour) }},
			{"expires a moment later", "", 0, func(d *kafka.DeadLetter) { d.FirstSeen = now.Add(30*time.Second - time.Hour + 1) }},
			{"its status is kept until a worker takes it up", "", 0, func(d *kafka.DeadLetter) { d.Timestamp = now.Add(30*time.Second - 30*time.Minute) }},
			{"its status is forgotten by then", SkipForgotten, 0, func(d *kafka.DeadLetter) { d.Timestamp = now.Add(30*time.Second - 30*time.Minute - 1) }},
			{"as old as it may be", "", 40 * time.Minute, func(d *kafka.DeadLetter) { d.FirstSeen = now.Add(-40 * time.Minute) }},
			{"older", SkipOld, 40 * time.Minute, func(d *kafka.DeadLetter) { d.FirstSeen = now.Add(-40*time.Minute - 1) }},
			{"redriven twice", "", 0, func(d *kafka.DeadLetter) { d.Redrive = 2 }},
			{"redriven three times", SkipRedriven, 0, func(d *kafka.DeadLetter) { d.Redrive = 3 }},
		} {
			q := newQueue(1)
			tt.change(q.letters[0])
			c := oneLane
			c.Apps = []string{"shop"}
			v, err := New(c, &fleet{queues: map[string]*queue{"push": q}}).Redrive(t.Context(), RedriveOptions{Rate: 1, MaxRedrives: 3, MaxAge: tt.maxAge})
			if want := tt.skip; err != nil || v.Matched != 1 || want == "" && v.Redriven != 1 || want != "" && (v.Redriven != 0 || v.Skipped[want] != 1) {
				t.Errorf("%s: %+v: %v", tt.why, v, err)
			}
		}
	})
}
