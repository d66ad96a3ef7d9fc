package fanout

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
)

// both are notes of both kinds.
type both interface {
	Notes
	Records
}

func TestNotes(t *testing.T) {
	tables := NewTableNotes(keyspacetest.Open(t))
	if err := tables.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, notes := range map[string]both{"memory": NewMemory(), "cassandra": tables} {
		t.Run(name, func(t *testing.T) { testNotes(t, notes) })
	}
}

func testNotes(t *testing.T, notes both) {
	ctx := t.Context()
	if p, err := notes.Look(ctx, aMessage); p != nil || err != nil {
		t.Fatalf("before the first job: %+v, %v", p, err)
	}
	// Of many at once one is the first, and all get that one.
	got := make([]*Job, 8)
	var jobs sync.WaitGroup
	for i := range got {
		jobs.Go(func() {
			j, err := notes.Begin(ctx, aJob(t, func(j *Job) { j.Partitions = int32(i + 1) }))
			if err != nil {
				t.Error(err)
			}
			got[i] = j
		})
	}
	jobs.Wait()
	for _, j := range got {
		if j == nil || j.Partitions != got[0].Partitions || string(j.Rest) != string(aJob(t).Rest) {
			t.Errorf("one has %+v, another %+v", got[0], j)
		}
	}
	if ended, err := notes.Ended(ctx, aMessage, 3); ended || err != nil {
		t.Errorf("ended %v, %v", ended, err)
	}
	first, again := Counts{Emitted: 5}, Counts{Emitted: 7, Skipped: [skips]int64{SkipLeft: 2, SkipUser: 1}}
	for part, c := range map[int]*Counts{3: &first, 1023: &first} {
		if err := notes.End(ctx, aMessage, part, c); err != nil {
			t.Fatal(err)
		}
	}
	if err := notes.End(ctx, aMessage, 3, &again); err != nil { // in place of the first
		t.Fatal(err)
	}
	if ended, err := notes.Ended(ctx, aMessage, 3); !ended || err != nil {
		t.Errorf("ended %v, %v", ended, err)
	}
	stopped := again
	stopped.Stopped = true
	if err := notes.End(ctx, aMessage, 3, &stopped); err != nil {
		t.Fatal(err)
	}
	p, err := notes.Look(ctx, aMessage)
	if err != nil || len(p.Ended) != 2 || p.Emitted != 12 || p.Skipped != again.Skipped || p.State != Running || p.Job.Partitions != got[0].Partitions {
		t.Errorf("%+v, %v", p, err)
	}

	other := uuid.MustParse("0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f99")
	at := time.UnixMilli(1_700_000_000_000)
	for _, step := range []struct {
		why   string
		order State
		at    time.Duration
		want  State
	}{
		{"resumed before anything", Running, 0, Running},
		{"paused", Paused, 2 * time.Second, Paused},
		{"resumed by an order that is older", Running, time.Second, Paused},
		{"resumed", Running, 3 * time.Second, Running},
		{"paused by an order that comes late", Paused, 2500 * time.Millisecond, Running},
		{"paused again", Paused, 4 * time.Second, Paused},
		{"cancelled", Cancelled, 0, Cancelled},
		{"resumed after that", Running, time.Hour, Cancelled},
	} {
		if err := notes.Order(ctx, other, step.order, at.Add(step.at)); err != nil {
			t.Fatal(err)
		}
		if s, err := notes.State(ctx, other); s != step.want || err != nil {
			t.Errorf("%s: %v, %v, want %v", step.why, s, err, step.want)
		}
	}
	if p, err := notes.Look(ctx, other); p != nil || err != nil {
		t.Errorf("orders alone are no job: %+v, %v", p, err)
	}
}
