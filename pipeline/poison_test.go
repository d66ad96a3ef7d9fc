package pipeline_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// delicate is a stage that panics, and remembers which items it has been
// through with.
type delicate struct {
	bad     func(b *pipeline.Batch, i int) bool // panics at item i
	applied int
	done    map[int64]bool
	fails   error
}

func (*delicate) Name() pipeline.Step { return "delicate" }

func (s *delicate) Apply(_ context.Context, b *pipeline.Batch) error {
	s.applied++
	if s.fails != nil && s.applied > 3 {
		return s.fails
	}
	for i := range b.Items {
		if s.bad(b, i) {
			panic("content of " + b.Items[i].Title)
		}
	}
	for i := range b.Items {
		s.done[b.Items[i].Offset] = true
	}
	return nil
}

func someItems(n int) *pipeline.Batch {
	b := &pipeline.Batch{Partition: push.Partition{Topic: "push.test"}, Items: make([]pipeline.Item, n)}
	for i := range b.Items {
		b.Items[i].Offset = int64(i)
		b.Items[i].Partition = b.Partition
		b.Items[i].Message = push.Message{ID: fmt.Sprint("id-", i), Title: "secret title"}
	}
	return b
}

func offsets(its []*pipeline.Item) []int64 {
	var os []int64
	for _, it := range its {
		os = append(os, it.Offset)
	}
	slices.Sort(os)
	return os
}

func at(offsets ...int64) func(*pipeline.Batch, int) bool {
	return func(b *pipeline.Batch, i int) bool { return slices.Contains(offsets, b.Items[i].Offset) }
}

func TestContain(t *testing.T) {
	strikes := 0
	for _, row := range []struct {
		why  string
		n    int
		bad  func(*pipeline.Batch, int) bool
		dead []int64
	}{
		{"no panic, one application", 100, at(), nil},
		{"one in the middle", 100, at(37), []int64{37}},
		{"first and last", 100, at(0, 99), []int64{0, 99}},
		{"a batch of one", 1, at(0), []int64{0}},
		{"neighbours", 7, at(3, 4), []int64{3, 4}},
		{"ten of ten: still the items", 10, at(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
		{"only when together: all go on", 16, func(b *pipeline.Batch, _ int) bool { return len(b.Items) > 1 }, nil},
		{"a coincidence, twice", 50, func(b *pipeline.Batch, i int) bool {
			if b.Items[i].Offset == 20 && len(b.Items) == 1 && strikes < 2 {
				strikes++
				return true
			}
			return b.Items[i].Offset == 20 && len(b.Items) > 1
		}, nil},
	} {
		s := &delicate{bad: row.bad, done: map[int64]bool{}}
		b := someItems(row.n)
		var found []pipeline.Poisoned
		err := pipeline.Contain(t.Context(), s, b, func(f pipeline.Poisoned) { found = append(found, f) })
		if err != nil {
			t.Errorf("%s: %v", row.why, err)
			continue
		}
		var dead []int64
		for i := range b.Items {
			it := &b.Items[i]
			switch {
			case it.Verdict == push.Dead:
				dead = append(dead, it.Offset)
				if it.Reason != push.Panicked || it.Detail != "delicate" {
					t.Errorf("%s: got reason %s:%s, want panicked:delicate", row.why, it.Reason, it.Detail)
				}
			case !s.done[it.Offset]:
				t.Errorf("%s: item %d did not pass the stage", row.why, it.Offset)
			}
		}
		if !slices.Equal(dead, row.dead) {
			t.Errorf("%s: got dead items %v, want %v", row.why, dead, row.dead)
		}
		switch {
		case s.applied == 1 && len(found) == 0:
		case len(found) != 1:
			t.Errorf("%s: got %d reports, want 1", row.why, len(found))
		case !slices.Equal(offsets(found[0].Dead), row.dead) || found[0].Panics < 1+2*len(row.dead):
			t.Errorf("%s: got a report of dead items %v and %d panics", row.why, offsets(found[0].Dead), found[0].Panics)
		}
	}
}

// An item has to make the stage panic three times, the first included.
func TestContainTriesThreeTimes(t *testing.T) {
	s := &delicate{bad: at(0), done: map[int64]bool{}}
	var f pipeline.Poisoned
	if err := pipeline.Contain(t.Context(), s, someItems(1), func(found pipeline.Poisoned) { f = found }); err != nil {
		t.Fatal(err)
	}
	if s.applied != 3 || f.Panics != 3 {
		t.Errorf("got %d applications and %d panics, want 3 of each", s.applied, f.Panics)
	}
}

// A stage that panics on most items is broken: its partition waits.
func TestContainBlamesTheStage(t *testing.T) {
	s := &delicate{bad: func(*pipeline.Batch, int) bool { return true }, done: map[int64]bool{}}
	b := someItems(1000)
	told := 0
	err := pipeline.Contain(t.Context(), s, b, func(pipeline.Poisoned) { told++ })
	var p *push.PanicError
	if !errors.As(err, &p) || told != 1 {
		t.Fatalf("got error %v and %d reports, want a panic and 1 report", err, told)
	}
	if dead := b.Undecided(nil); len(dead) != 1000 {
		t.Errorf("a broken stage decided %d items, want 0", 1000-len(dead))
	}
	if s.applied > 1000 {
		t.Errorf("the stage was applied %d times, want at most 1000", s.applied)
	}
}

// A store that fails in the middle of the search is a failure of the stage:
// nobody is decided, and the whole is repeated.
func TestContainPassesErrorsOn(t *testing.T) {
	down := errors.New("store is down")
	s := &delicate{bad: at(0), done: map[int64]bool{}, fails: down}
	b := someItems(64)
	if err := pipeline.Contain(t.Context(), s, b, func(pipeline.Poisoned) {}); !errors.Is(err, down) {
		t.Errorf("error %v", err)
	}
	if n := len(b.Undecided(nil)); n != 64 {
		t.Errorf("got %d items decided, want 0", 64-n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s = &delicate{bad: func(*pipeline.Batch, int) bool { cancel(); return true }, done: map[int64]bool{}}
	if err := pipeline.Contain(ctx, s, b, func(pipeline.Poisoned) {}); !errors.Is(err, context.Canceled) || s.applied != 1 {
		t.Errorf("got error %v after %d applications, want context.Canceled after 1", err, s.applied)
	}
}

// What was passed to panic may be made of a message: only the runtime's own
// words are told.
func TestPanicsTellNoContent(t *testing.T) {
	var nothing map[string]int
	for _, row := range []struct {
		panics func(it *pipeline.Item)
		what   string
	}{
		{func(it *pipeline.Item) { panic("content of " + it.Title) }, "value of type string"},
		{func(it *pipeline.Item) { panic(errors.New(it.Title)) }, "value of type *errors.errorString"},
		{func(it *pipeline.Item) { nothing[it.Title] = 1 }, "assignment to entry in nil map"},
		{func(it *pipeline.Item) { _ = it.Title[len(it.Title)+it.Attempt] }, "index out of range"},
	} {
		s := &delicate{done: map[int64]bool{}, bad: func(b *pipeline.Batch, i int) bool { row.panics(&b.Items[i]); return false }}
		var f pipeline.Poisoned
		if err := pipeline.Contain(t.Context(), s, someItems(1), func(found pipeline.Poisoned) { f = found }); err != nil {
			t.Fatal(err)
		}
		text := f.First.Error() + string(f.First.Stack)
		if !strings.Contains(f.First.What, row.what) || strings.Contains(text, "secret") {
			t.Errorf("got %[2]s, want %[1]q and no content", row.what, text)
		}
	}
}

// Whichever items are poison, they and no others are found.
func TestContainProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 300).Draw(rt, "items")
		bad := rapid.SliceOfNDistinct(rapid.Int64Range(0, int64(n)-1), 0, min(n, max(10, n/10)), rapid.ID[int64]).Draw(rt, "poison")
		slices.Sort(bad)
		s := &delicate{bad: at(bad...), done: map[int64]bool{}}
		b := someItems(n)
		if err := pipeline.Contain(context.Background(), s, b, func(pipeline.Poisoned) {}); err != nil {
			rt.Fatal(err)
		}
		for i := range b.Items {
			dead := b.Items[i].Verdict == push.Dead
			if dead != slices.Contains(bad, int64(i)) || dead == s.done[int64(i)] {
				rt.Fatalf("item %d: dead %v, done %v; poison is %v", i, dead, s.done[int64(i)], bad)
			}
		}
	})
}

// poisonStage panics on every 100th record.
type poisonStage struct{}

func (poisonStage) Name() pipeline.Step { return "preferences" }

func (poisonStage) Apply(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Items {
		if it := &b.Items[i]; it.Verdict == push.Undecided && it.Offset%200 == 14 {
			var user *push.User
			user.Preferences.OptOutAll = true
		}
	}
	return nil
}

// TestPoison: records on which a stage panics end in the DLQ, all others as
// usual, and every partition goes on to its end.
func TestPoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(5)
		w.fill(2, 1000)
		pr, reg := &provider{w: w}, prometheus.NewRegistry()
		var log bytes.Buffer
		p, err := pipeline.New(pipeline.Options{
			Lane: "test", Source: w, Stages: []pipeline.Stage{poisonStage{}, w}, Producer: w, Status: w, Ledger: w, Seen: w, Latest: &w.lives,
			Routes: map[push.Route]pipeline.Provider{{Platform: push.APNS, App: "shop"}: pr, {Platform: push.FCM, App: "shop"}: pr},
			Policy: pipeline.Policy{MaxRetries: 3, RetryDelays: []time.Duration{30 * time.Second}}, StageWorkers: 1, Window: 300,
			SendDeadline: time.Second, StatusTimeout: time.Second, Drain: 5 * time.Second, CommitTimeout: time.Second, CommitInterval: 50 * time.Millisecond,
			Ends: toldSenders{}, Metrics: pipeline.NewMetrics(reg), Log: slog.New(slog.NewTextHandler(io.Writer(&log), nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		w.wait(t)
		stop()
		run.Wait()
		pr.out.Wait()
		w.check(t)
		for part, ids := range w.ids {
			for i, id := range ids {
				if poison := i%100 == 7; poison != (w.dead[id] > 0 && w.rows[id][0].Reason == "panicked:preferences") {
					t.Errorf("partition %d, record %d: poison %v, %d in the DLQ, rows %+v", part, i, poison, w.dead[id], w.rows[id])
				}
			}
		}
		// Of each batch of 100 with one poisoned record: the whole, its halves
		// down to the record (7 or 6 more), and the record two times more.
		if n := counted(t, reg, "push_panics_total", "preferences"); n < 20*(1+6+2) || n > 20*(1+7+2) {
			t.Errorf("push_panics_total is %v", n)
		}
		if n := counted(t, reg, "push_panics_total", "devices"); n != 0 {
			t.Errorf("push_panics_total is %v for a stage that never panicked", n)
		}
		if text := log.String(); !strings.Contains(text, "nil pointer dereference") || !strings.Contains(text, "push.test/1@") {
			t.Errorf("missing in the log:\n%.2000s", text)
		}
	})
}

// counted is the value of a counter whose last label is value.
func counted(t *testing.T, reg *prometheus.Registry, name, value string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && m.Label[len(m.Label)-1].GetValue() == value {
				return m.Counter.GetValue()
			}
		}
	}
	t.Fatalf("no %s found for %s", name, value)
	return 0
}

// crashing is a provider whose code panics on every 25th message of a user, and
// on the answer to every other 25th.
type crashing struct{ provider }

func (p *crashing) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.out.Go(func() {
			time.Sleep(time.Millisecond)
			switch d.Item.Offset % 100 {
			case 10:
				d.Result = push.Result{Class: push.Refused, Panic: &push.PanicError{Stage: "encode", What: "index out of range"}, Reason: "encode"}
			case 60:
				d.Result = push.Result{Class: push.Again, Certainty: push.Ambiguous, Panic: &push.PanicError{Stage: "read"}}
			default:
				d.Result = push.Result{Class: push.Delivered}
			}
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

// A message on which a provider's code panics ends in the DLQ, an answer on
// which it does is of unknown outcome; both are counted, and the partition goes
// on.
func TestPoisonedSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(5, 1, 1000)
		pr := &crashing{provider{w: w}}
		reg := prometheus.NewRegistry()
		p := w.pipelineTo(t, 300, pr, pr)
		p.Options().Stages[0], p.Options().Metrics = oneDevice{}, pipeline.NewMetrics(reg)
		w.batches[0].Poisoned = &pipeline.Poisoned{First: &push.PanicError{Stage: "decode"}, Panics: 3}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		w.wait(t)
		stop()
		run.Wait()
		pr.out.Wait()
		sent, unread := 0, 0
		for _, id := range w.ids[0] {
			rows := w.rows[id]
			if len(rows) != 1 {
				t.Fatalf("%s: got rows %v, want 1", id, rows)
			}
			switch r := rows[0]; {
			case r.State == push.StateDeadLettered && r.Reason == string(push.Panicked):
				if sent++; w.dead[id] != 1 {
					t.Errorf("%s is not in the DLQ", id)
				}
			case r.State == push.StateRetrying:
				unread++
			}
		}
		if sent != 20 || unread != 20 {
			t.Errorf("got %d dead and %d to be retried, want 20 and 20", sent, unread)
		}
		for stage, want := range map[string]float64{"decode": 3, "encode": 20, "read": 20} {
			if n := counted(t, reg, "push_panics_total", stage); n != want {
				t.Errorf("push_panics_total is %v for %s, want %v", n, stage, want)
			}
		}
	})
}

// startled panics the first time that each of its steps is asked, after it was
// done.
type startled struct {
	*world
	mu    sync.Mutex
	asked map[string]bool
}

func (s *startled) once(step string) {
	s.mu.Lock()
	first := !s.asked[step]
	s.asked[step] = true
	s.mu.Unlock()
	if first {
		panic("secret text")
	}
}

func (s *startled) Write(ctx context.Context, rows []push.Row) error {
	defer s.once("write")
	return s.world.Write(ctx, rows)
}

func (s *startled) Produce(ctx context.Context, hs []pipeline.Handover) error {
	defer s.once("produce")
	return s.world.Produce(ctx, hs)
}

func (s *startled) Add(ctx context.Context, ids []string) error {
	defer s.once("add")
	return s.world.Add(ctx, ids)
}

func (s *startled) Accepted(ctx context.Context, items []*pipeline.Item) error {
	defer s.once("latest")
	return s.world.Accepted(ctx, items)
}

func (s *startled) HandedOver(ctx context.Context, items []*pipeline.Item) error {
	defer s.once("handed over")
	return s.world.HandedOver(ctx, items)
}

// A panic after the answer ends nothing: a store's step is done again, and what
// cannot be decided ends as what is known of it, DELIVERED or UNKNOWN.
func TestPanicsAfterTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(5, 1, 1000)
		odd := map[string]bool{}
		for _, b := range w.batches {
			for i := range b.Items {
				b.Items[i].CollapseKey, b.Items[i].Derived = "k", false
				if i%10 == 7 {
					b.Items[i].Attempt = -1 // which no decoder lets through
					odd[b.Items[i].ID] = true
				}
			}
		}
		pr := &slow{w: w, wait: time.Millisecond, answer: func(d *pipeline.Delivery) push.Result {
			if odd[d.Item.ID] && d.Item.Offset%40 != 14 {
				return push.Result{Class: push.Again, Certainty: push.Ambiguous, Reason: "timeout"}
			}
			return push.Result{Class: push.Delivered, Certainty: push.Accepted}
		}}
		reg := prometheus.NewRegistry()
		p := w.pipelineTo(t, 300, pr, pr)
		s := &startled{world: w, asked: map[string]bool{}}
		p.Options().Stages[0], p.Options().Metrics = oneDevice{}, pipeline.NewMetrics(reg)
		p.Options().Status, p.Options().Producer, p.Options().Seen, p.Options().Latest = s, s, s, s
		stop := w.starts(t, p)
		w.wait(t)
		stop()
		pr.out.Wait()
		if len(s.asked) != 5 {
			t.Errorf("only %v were called", s.asked)
		}
		unknown := 0
		for _, id := range w.ids[0] {
			rows := w.rows[id]
			if len(rows) != 1 {
				t.Fatalf("%s: got rows %v, want 1", id, rows)
			}
			switch r := rows[0]; {
			case r.State == push.StateUnknown && odd[id] && r.Reason == string(push.Panicked):
				unknown++
			case r.State != push.StateDelivered && r.State != push.StateDeadLettered:
				t.Errorf("%s ended %v", id, r.State)
			}
		}
		if n := counted(t, reg, "push_panics_total", "settle"); unknown == 0 || int(n) != unknown {
			t.Errorf("got %d UNKNOWN and %v panics counted", unknown, n)
		}
	})
}

// Ten items of a small batch, or one in ten of a large one, may be at fault themselves.
func TestWhenTheCodeIsAtFault(t *testing.T) {
	for _, tt := range []struct {
		panicked, of int
		want         bool
	}{{1, 1, false}, {10, 10, false}, {10, 100, false}, {11, 100, true}, {11, 110, false}, {100, 1000, false}, {101, 1000, true}} {
		if got := pipeline.TooManyPoisoned(tt.panicked, tt.of); got != tt.want {
			t.Errorf("%d of %d: got %v, want %v", tt.panicked, tt.of, got, tt.want)
		}
	}
}
