package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// trouble is what a collaborator does between two times instead of its work.
type trouble struct {
	kind     int // see troubles
	from, to time.Time
	share    float64 // of its calls
	mu       sync.Mutex
	random   *rand.Rand
}

var troubles = []string{"none", "fails", "hangs for a while", "hangs", "panics", "is slow", "did it, and fails"}

func newTrouble(r *rand.Rand, start time.Time) *trouble {
	from := start.Add(time.Duration(r.IntN(5000)) * time.Millisecond)
	return &trouble{kind: r.IntN(len(troubles)) * r.IntN(2), from: from, to: from.Add(time.Duration(r.IntN(8000)) * time.Millisecond),
		share: []float64{0.3, 1}[r.IntN(2)], random: rand.New(rand.NewPCG(r.Uint64(), 1))}
}

// meet does the work, or what the trouble makes of it.
func (f *trouble) meet(ctx context.Context, work func() error) error {
	now := time.Now()
	f.mu.Lock()
	hit := f.random.Float64() < f.share
	f.mu.Unlock()
	if f.kind == 0 || !hit || now.Before(f.from) || now.After(f.to) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return work()
	}
	switch troubles[f.kind] {
	case "fails":
		return errors.New("away")
	case "hangs for a while":
		select {
		case <-ctx.Done():
		case <-time.After(700 * time.Millisecond):
		}
		return context.DeadlineExceeded
	case "hangs":
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(f.to)):
			return work()
		}
	case "panics":
		panic("index out of range")
	case "is slow":
		time.Sleep(300 * time.Millisecond)
		return work()
	}
	return errors.Join(work(), errors.New("answer lost"))
}

// troubled is a world in which each collaborator has its own trouble.
type troubled struct {
	*world
	status, producer, filter, latest, ledger, recheck, commit *trouble
}

func newTroubled(w *world, r *rand.Rand) *troubled {
	next := func() *trouble { return newTrouble(r, time.Now()) }
	tr := &troubled{w, next(), next(), next(), next(), next(), next(), next()}
	if troubles[tr.commit.kind] == "panics" { // a source's panic is none of the pipeline's
		tr.commit.kind = 0
	}
	return tr
}

// String names the troubles there are.
func (w *troubled) String() string {
	s := fmt.Sprintf("once %v", w.once)
	for i, f := range []*trouble{w.status, w.producer, w.filter, w.latest, w.ledger, w.recheck, w.commit} {
		if f.kind != 0 {
			s += fmt.Sprintf(", %s %s", []string{"status", "producer", "filter", "latest", "ledger", "recheck", "commit"}[i], troubles[f.kind])
		}
	}
	return s
}

func (w *troubled) Write(ctx context.Context, rows []push.Row) error {
	return w.status.meet(ctx, func() error { return w.world.Write(ctx, rows) })
}

func (w *troubled) Read(ctx context.Context, ids []string) (rows [][]push.Row, err error) {
	err = w.ledger.meet(ctx, func() error { rows, err = w.world.Read(ctx, ids); return err })
	return rows, err
}

func (w *troubled) Produce(ctx context.Context, hs []pipeline.Handover) error {
	return w.producer.meet(ctx, func() error { return w.world.Produce(ctx, hs) })
}

func (w *troubled) Add(ctx context.Context, ids []string) error {
	return w.filter.meet(ctx, func() error { return w.world.Add(ctx, ids) })
}

func (w *troubled) Accepted(ctx context.Context, items []*pipeline.Item) error {
	_ = w.lives.Accepted(ctx, items) // it was told, whatever it makes of it
	return w.latest.meet(ctx, func() error { return nil })
}

func (w *troubled) HandedOver(ctx context.Context, items []*pipeline.Item) error {
	_ = w.lives.HandedOver(ctx, items)
	return w.latest.meet(ctx, func() error { return nil })
}

func (w *troubled) Recheck(ctx context.Context, ds []*pipeline.Delivery) error {
	return w.recheck.meet(ctx, func() error {
		for i, d := range ds {
			if i%7 == 3 {
				d.Verdict, d.Reason = push.Suppressed, push.OptedOutAll
			}
		}
		return nil
	})
}

func (w *troubled) Commit(ctx context.Context) error {
	return w.commit.meet(ctx, func() error { return w.world.Commit(ctx) })
}

// mixed are devices of which some are decided already.
type mixed struct{ *world }

func (s mixed) Apply(ctx context.Context, b *pipeline.Batch) error {
	if err := s.world.Apply(ctx, b); err != nil {
		return err
	}
	for i := range b.Items {
		it := &b.Items[i]
		it.Read = pipeline.UptimeAt(time.Now())
		for j := range it.Deliveries {
			d := &it.Deliveries[j]
			switch (i + j) % 9 {
			case 2:
				d.Verdict, d.Reason = push.Suppressed, push.TokenGone
			case 5:
				d.Route.App = "unknown"
			}
		}
	}
	return nil
}

// TestTroubles: each collaborator fails, hangs, panics, is slow or loses its
// answers for a while, in each mode, and a partition is revoked or the worker
// stopped at any moment of it. Whatever that leaves behind: Run is out within its
// drain, no item is forgotten in flight, nothing is committed without its end,
// the bound holds, and stores that were well know all that was accepted.
func TestTroubles(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { inTrouble(t, seed) })
		})
	}
}

func inTrouble(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(seed)
	w.faults, w.once = false, seed%3 == 0
	w.fill(3, 600)
	if seed%4 == 1 {
		w.retry()
	}
	wait := func() time.Duration {
		return []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, time.Second}[r.IntN(3)]
	}
	apns, fcm := &slow{w: w, wait: wait(), queue: 5 * time.Millisecond, answer: anyAnswer}, &slow{w: w, wait: wait(), answer: anyAnswer}
	tr := newTroubled(w, r)
	window := []int{20, 50, 300}[r.IntN(3)]
	p := w.pipelineTo(t, window, apns, fcm)
	p.Options().Source, p.Options().Status, p.Options().Producer, p.Options().Seen, p.Options().Latest, p.Options().Ledger = tr, tr, tr, tr, tr, tr
	p.Options().Recheck, p.Options().RecheckAfter = tr, 1200*time.Millisecond
	p.Options().Stages[0] = mixed{w}
	stop := w.starts(t, p)

	var revoke sync.WaitGroup
	if r.IntN(2) == 0 {
		at := time.Duration(r.IntN(6000)) * time.Millisecond
		revoke.Go(func() {
			time.Sleep(at)
			drain, cancel := context.WithTimeout(t.Context(), p.Options().Drain)
			defer cancel()
			_ = w.trackers[1].Drain(drain)
			w.trackers[1].Fence()
		})
	}
	if r.IntN(4) > 0 {
		time.Sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
	} else { // all trouble is over long before
		revoke.Wait()
		time.Sleep(15 * time.Minute)
		for part, tracker := range w.trackers {
			if tracker.Open() > 0 && !tracker.Draining() {
				t.Errorf("%v: partition %d makes no progress, %d open", tr, part, tracker.Open())
			}
		}
	}
	if took := stop(); took > p.Options().Drain {
		t.Errorf("%v: stopping took %v, the drain budget is %v", tr, took, p.Options().Drain)
	}
	apns.out.Wait()
	fcm.out.Wait()
	revoke.Wait()
	tr.checkEnd(t, window)
}

// anyAnswer is one of all answers, the same for a device each time.
func anyAnswer(d *pipeline.Delivery) push.Result {
	switch len(d.Device.Hash) * int(d.Item.Offset+1) * 7 % 11 {
	case 1, 8:
		return push.Result{Class: push.Again, Certainty: push.Ambiguous, Reason: "timeout"}
	case 2:
		return push.Result{Class: push.Gone, Reason: "Unregistered"}
	case 3:
		return push.Result{Class: push.Again, Reason: "ServiceUnavailable"}
	}
	return push.Result{Class: push.Delivered, Certainty: push.Accepted}
}

// checkEnd checks what is left when Run has returned and the providers have
// answered.
func (w *troubled) checkEnd(t *testing.T, window int) {
	t.Helper()
	now, cancel := context.WithCancel(t.Context())
	cancel()
	for part, tracker := range w.trackers {
		if tracker.Drain(now) != nil {
			t.Errorf("%v: partition %d has items in flight after the end", w, part)
		}
	}
	w.lives.check(t)
	if len(w.early) > 0 || w.rewinds > 0 {
		t.Errorf("%v: %d rewinds, committed without an end: %v", w, w.rewinds, w.early)
	}
	if w.mostExposed > 2*window {
		t.Errorf("%v: got %d sends without a row at one moment, want at most %d", w, w.mostExposed, 2*window)
	}
	if w.status.kind == 0 && w.producer.kind == 0 && w.commit.kind == 0 && len(w.accepted) > 0 {
		w.checkRows(t)
	}
}

// checkRows checks that all that was accepted, and all that was intended, has
// its row.
func (w *troubled) checkRows(t *testing.T) {
	t.Helper()
	states := make(map[string]push.State) // by device
	open := 0
	for _, rows := range w.rows {
		h := push.History{Rows: rows}
		for _, r := range rows {
			states[r.Device], _ = h.DeviceState(r.Device)
			if states[r.Device] == push.StateSending {
				open++
			}
		}
	}
	bare := 0
	for device := range w.accepted {
		if states[device] != push.StateDelivered {
			bare++
		}
	}
	if bare > 0 || open > 0 {
		t.Errorf("%v: %d accepted sends have no row, %d intents are open", w, bare, open)
	}
}
