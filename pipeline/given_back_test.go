package pipeline_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// patient is a stage without a store for one batch until some time; all others pass.
type patient struct {
	id    string
	until time.Time
}

func (*patient) Name() pipeline.Step { return "devices" }

func (s *patient) Apply(_ context.Context, b *pipeline.Batch) error {
	if b.Items[0].ID == s.id && time.Now().Before(s.until) {
		return errors.New("the store of another user of this batch is away")
	}
	for i := range b.Items {
		it := &b.Items[i]
		if it.Verdict == push.Undecided {
			it.Deliveries = []pipeline.Delivery{{Item: it, Route: push.Route{Platform: push.APNS, App: "shop"}, Device: pipeline.Device{Hash: it.ID + "-d0"}, Expires: push.At(time.Now().Add(time.Hour))}}
		}
	}
	return nil
}

// slowRows writes rows slowly.
type slowRows struct {
	*world
	takes time.Duration
}

func (s slowRows) Write(ctx context.Context, rows []push.Row) error {
	time.Sleep(s.takes)
	return s.world.Write(ctx, rows)
}

// oneKey is a Latest of notifications that all have one collapse key, and are read by age. As
// collapse.Latest it notes only where an older one is in flight, or was handed over.
type oneKey struct {
	mu          sync.Mutex
	flying      int
	open, noted bool
}

func (k *oneKey) Begin(items []pipeline.Item) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range items {
		items[i].Place = 1
		k.flying++
	}
}

func (k *oneKey) End(places []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.flying -= len(places)
}

func (k *oneKey) HandedOver(context.Context, []*pipeline.Item) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.open = true
	return nil
}

func (k *oneKey) Accepted(_ context.Context, items []*pipeline.Item) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, it := range items {
		if it.ID == "newer" && it.Verdict == push.Undecided && (k.open || k.flying > 1) {
			k.noted = true
		}
	}
	return nil
}

// knows reports whether the older one's next attempt is superseded, and that nothing is in flight.
func (k *oneKey) knows(t *testing.T) bool {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flying != 0 {
		t.Errorf("%d are in flight at the end", k.flying)
	}
	return k.noted
}

// twoOf has the world begin anew with an owner of one partition, which reads notifications of one
// user and collapse key, each in a batch of its own and a second after the one before.
func twoOf(w *world, ids ...string) (*pipeline.Tracker, []*pipeline.Item) {
	part := push.Partition{Topic: "push.test"}
	tr := pipeline.NewTracker(pipeline.TrackerOptions{Partition: part, Capacity: 10})
	w.trackers[0] = tr
	w.batches, w.ids[0] = nil, nil
	var its []*pipeline.Item
	for n, id := range ids {
		b := &pipeline.Batch{Partition: part, Tracker: tr, Items: make([]pipeline.Item, 1)}
		it := &b.Items[0]
		at := push.At(time.Date(2000, 1, 1, 0, 0, n, 0, time.UTC))
		it.Partition, it.Offset, it.Timestamp, it.FirstSeen = part, int64(n), at, at
		it.Message = push.Message{ID: id, UserID: "ada", App: "shop", CollapseKey: "k"}
		tr.Admit(b)
		w.batches = append(w.batches, b)
		w.ids[0] = append(w.ids[0], id)
		its = append(its, it)
	}
	return tr, its
}

// The older one waits in a stage, the newer one has overtaken it and is with the provider
// (or its row is being written) when the partition leaves. The next owner's attempt of the older
// one fails; its retry must not be sent.
func TestTheOlderIsGivenBackBeforeTheNewerIsNoted(t *testing.T) {
	for _, tt := range []struct {
		why              string
		answer, row      time.Duration
		leaves           time.Duration
		stops, committed bool
	}{
		{why: "nothing leaves", answer: 100 * time.Millisecond},
		{why: "revoked while the newer one is with the provider", answer: 500 * time.Millisecond, leaves: 100 * time.Millisecond},
		{why: "revoked after the newer one was accepted, while its row is written", answer: 100 * time.Millisecond, row: 600 * time.Millisecond, leaves: 300 * time.Millisecond},
		{why: "stopped while the newer one is with the provider", answer: 500 * time.Millisecond, leaves: 100 * time.Millisecond, stops: true},
	} {
		t.Run(tt.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				latest := new(oneKey)
				w := newWorld(1)
				w.faults = false
				again := func(d *pipeline.Delivery) push.Result {
					if d.Item.ID == "older" {
						return push.Result{Class: push.Again, Reason: "ServiceUnavailable"}
					}
					return push.Result{Class: push.Delivered, Certainty: push.Accepted}
				}
				run := func(away time.Time) func() time.Duration {
					pr := &slow{w: w, wait: tt.answer, answer: again}
					p := w.make(t, w, &patient{"older", away}, 50, pr, pr)
					p.Options().Latest, p.Options().Status = latest, slowRows{w, tt.row}
					return w.starts(t, p)
				}
				tr, _ := twoOf(w, "older", "newer")
				away := time.Now().Add(2 * time.Second)
				stop := run(away)
				if tt.leaves > 0 {
					time.Sleep(tt.leaves)
					if tt.stops {
						stop()
						stop = nil
					} else {
						ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
						if err := tr.Drain(ctx); err != nil {
							t.Fatal(err)
						}
						cancel()
						tr.Fence()
					}
				} else {
					time.Sleep(20 * time.Second)
				}
				if stop != nil {
					stop()
				}
				if w.accepted["newer-d0"] != 1 {
					t.Fatal("setup: the newer one was not accepted")
				}
				if tt.leaves > 0 {
					if w.retried["older"] != 0 {
						t.Fatal("setup: the older one was sent")
					}
					// The next owner reads both; the newer one is a copy by its rows.
					_, its := twoOf(w, "older", "newer")
					its[1].Decide(push.Duplicate, "", "")
					stop = run(time.Time{})
					time.Sleep(20 * time.Second)
					stop()
				}
				if w.retried["older"] != 1 {
					t.Fatalf("setup: retried %v", w.retried)
				}
				if !latest.knows(t) {
					t.Error("the older one's retry is sent over the newer one, which was accepted while the older one was in flight or not yet sent")
				}
			})
		})
	}
}

// startsWith runs a pipeline whose provider accepts everything after some time.
func (w *world) startsWith(t *testing.T, latest pipeline.Latest, s pipeline.Stage, takes time.Duration) (stop func() time.Duration) {
	t.Helper()
	pr := &slow{w: w, wait: takes}
	p := w.make(t, w, s, 50, pr, pr)
	p.Options().Latest = latest
	return w.starts(t, p)
}

// What was shed is replayed to a retry topic (pushctl replay --shed), after a newer one was accepted.
func TestWhatWasShedMayBeReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		latest := new(oneKey)
		w := newWorld(1)
		w.faults = false
		_, its := twoOf(w, "older", "newer")
		its[0].Decide(push.Shed, push.ShedDepth, "")
		// The newer one comes a while after the older one was shed.
		second := w.batches[1]
		w.batches = w.batches[:1]
		w.feed = make(chan struct{})
		stop := w.startsWith(t, latest, &patient{}, 100*time.Millisecond)
		time.Sleep(time.Second)
		w.mu.Lock()
		w.batches = append(w.batches, second)
		w.mu.Unlock()
		w.feed <- struct{}{}
		time.Sleep(5 * time.Second)
		stop()
		if w.accepted["newer-d0"] != 1 {
			t.Fatal("setup: the newer one was not accepted")
		}
		if !latest.knows(t) {
			t.Error("the replayed record of the older one is sent over the newer one")
		}
	})
}

// The next owner has the older one in a line for longer than RecheckAfter: Recheck asks about its first attempt.
func TestRecheckOfWhatWasGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		latest := new(oneKey)
		w := newWorld(1)
		w.faults = false
		tr, _ := twoOf(w, "older", "newer")
		stop := w.startsWith(t, latest, &patient{"older", time.Now().Add(time.Minute)}, 500*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := tr.Drain(ctx); err != nil {
			t.Fatal(err)
		}
		tr.Fence()
		stop()
		if w.accepted["newer-d0"] != 1 {
			t.Fatal("setup: the newer one was not accepted")
		}
		if !latest.knows(t) {
			t.Error("Recheck lets the older one's first attempt through")
		}
	})
}
