package stages_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// fleet is what two pipelines share: a status store, the records handed over,
// and a provider that counts sends. A send to a device named in slow takes that
// long. mu guards all of it.
type fleet struct {
	mu     sync.Mutex
	rows   map[string][]push.Row
	handed []pipeline.Handover
	sends  map[string]int // by id
	slow   map[string]time.Duration
	out    sync.WaitGroup
}

func (f *fleet) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([][]push.Row, len(ids))
	for i, id := range ids {
		all[i] = slices.Clone(f.rows[id])
	}
	return all, nil
}

func (f *fleet) Write(_ context.Context, rows []push.Row) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range rows {
		f.rows[r.ID] = append(f.rows[r.ID], r)
	}
	return nil
}

func (*fleet) Bucket(string) int64 { return 0 }

func (f *fleet) Produce(_ context.Context, hs []pipeline.Handover) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handed = append(f.handed, hs...)
	return nil
}

func (*fleet) Add(context.Context, []string) error           { return nil }
func (*fleet) Check(context.Context, []string, []bool) error { return nil }
func (*fleet) Horizon(time.Time) time.Time                   { return time.Time{} }

func (f *fleet) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		f.mu.Lock()
		f.sends[d.Item.ID]++
		wait := f.slow[d.Item.ID]
		f.mu.Unlock()
		f.out.Go(func() {
			time.Sleep(wait)
			d.Result = push.Result{Class: push.Delivered}
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

// records is a source of single records, each of its own assignment.
type records chan *pipeline.Batch

func (r records) Next(ctx context.Context) (*pipeline.Batch, error) {
	select {
	case b := <-r:
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (records) Commit(context.Context) error { return nil }

func (r records) put(it pipeline.Item, retry bool) {
	b := &pipeline.Batch{Items: []pipeline.Item{it}, Retry: retry,
		Tracker: pipeline.NewTracker(pipeline.TrackerOptions{Capacity: 1, Confirms: 1, Retry: retry})}
	b.Tracker.Admit(b)
	r <- b
}

// runWorker runs a pipeline with a window of one send, until stop.
func (f *fleet) runWorker(t *testing.T, in records) (stop func()) {
	t.Helper()
	phone := push.Device{Platform: push.FCM, App: "shop", Token: "t", Hash: "d1", RegisteredAt: hour}
	p, err := pipeline.New(pipeline.Options{
		Lane: "test", Source: in, Producer: f, Status: f, Ledger: f, Seen: f,
		Stages: stages.NewOrder(&stages.Dedupe{Filter: f, Ledger: f}, nil, &stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: 24 * time.Hour},
			nil, nil, &stages.Preferences{Users: people{user: push.User{Devices: []push.Device{phone}}}}, &stages.Devices{}, nil, &stages.Limits{}),
		Routes: map[push.Route]pipeline.Provider{{Platform: push.FCM, App: "shop"}: f},
		Policy: pipeline.Policy{MaxRetries: 3, RetryDelays: []time.Duration{30 * time.Second}}, StageWorkers: 1, Window: 1,
		SendDeadline: 10 * time.Second, StatusTimeout: 5 * time.Second, Drain: 20 * time.Second, CommitTimeout: time.Second, CommitInterval: time.Second,
		Metrics: pipeline.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = p.Run(ctx) })
	return func() { cancel(); run.Wait() }
}

// A worker died between a retry record and the row that says so. Its record is
// read again, is confirmed, and waits in its route behind others. Meanwhile the
// retry is due, claims the device, waits another tier and is sent. Whenever the
// turn of the first record comes, only one of the two is sent.
func TestWhatWaitedIsNotSentBesideItsCopy(t *testing.T) {
	for _, first := range []struct {
		why     string
		attempt int
		redrive int
	}{
		{"a record of the lane's own topic", 0, 0},
		{"a retry, whose own retry was handed over", 1, 0},
		{"a redriven record, whose retry was handed over", 0, 1},
	} {
		for _, turn := range []time.Duration{0, 5 * time.Second, 20 * time.Second, 29 * time.Second, 31 * time.Second, 59 * time.Second, 61 * time.Second, 10 * time.Minute} {
			t.Run(fmt.Sprintf("%s, its turn after %v", first.why, turn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fleet{rows: map[string][]push.Row{}, sends: map[string]int{}, slow: map[string]time.Duration{"before": turn, "n": 9 * time.Second}}
					own, retries := make(records), make(records)
					stopOwn, stopRetries := f.runWorker(t, own), f.runWorker(t, retries)

					original := item("n", func(it *pipeline.Item) { it.Attempt, it.Redrive = first.attempt, first.redrive })
					if first.attempt > 0 {
						original.Devices = []string{"d1"}
						f.rows["n"] = []push.Row{row("n", "d1", 0, push.StateRetrying)}
					}
					if first.redrive > 0 {
						original.Hops = 4
						f.rows["n"] = []push.Row{row("n", "d1", 3, push.StateDeadLettered)}
					}
					retry := original
					retry.Attempt, retry.Devices = first.attempt+1, []string{"d1"}

					own.put(item("before", nil), false)
					synctest.Wait() // it occupies the window
					own.put(original, first.attempt > 0)
					time.Sleep(15 * time.Second)
					for range 5 { // the retry, and the records that it is handed over to
						retries.put(retry, true)
						time.Sleep(30 * time.Second)
						f.mu.Lock()
						handed := f.handed
						f.handed = nil
						f.mu.Unlock()
						if len(handed) == 0 {
							break
						}
						retry.Attempt, retry.Hops, retry.Devices = handed[0].Attempt, handed[0].Hops, handed[0].Devices
					}
					time.Sleep(15 * time.Minute)
					stopOwn()
					stopRetries()
					f.out.Wait()
					if n := f.sends["n"]; n != 1 {
						t.Errorf("got %d sends, rows %v", n, f.rows["n"])
					}
					h := push.History{Rows: f.rows["n"]}
					if got := h.Outcome(); got != push.OutcomeDelivered {
						t.Errorf("got outcome %v, rows %v", got, f.rows["n"])
					}
				})
			})
		}
	}
}

// Only the devices that another record has are left out.
func TestDevicesHandedElsewhere(t *testing.T) {
	f := &fleet{rows: map[string][]push.Row{"n": {row("n", "d1", 0, push.StateHeld), row("n", "d2", 0, push.StateRetrying)},
		"whole": {row("whole", "", 0, push.StateRetrying)}}}
	named := func(it *pipeline.Item) {
		it.Attempt, it.Confirm, it.HandedAs, it.Devices = 1, true, push.StateRetrying, []string{"d1", "d2"}
	}
	whole := func(it *pipeline.Item) { it.Hops, it.Confirm, it.HandedAs = 1, true, push.StateHeld }
	b := &pipeline.Batch{Items: []pipeline.Item{item("n", named), item("whole", whole)}}
	if err := (&stages.Dedupe{Filter: f, Ledger: f}).Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if it := &b.Items[0]; it.Verdict != push.Undecided || !slices.Equal(it.Devices, []string{"d2"}) {
		t.Errorf("got %v for %v, want d2 to continue", it.Verdict, it.Devices)
	}
	if it := &b.Items[1]; it.Verdict != push.Duplicate {
		t.Errorf("item handed over as a whole to another record: got %v", it.Verdict)
	}
}

// A worker handed a device over to a retry topic and died before the row that
// says so. Its successor found the route stopped, and handed over to the hold
// topic, or the other way round. So two records of one step are in two topics
// and may be due at once. One of them is sent. If both have rows, because the
// first worker was only suspended, neither is lost.
func TestTwoHandOversOfOneStep(t *testing.T) {
	for _, rows := range [][]push.State{{push.StateHeld}, {push.StateRetrying}, {push.StateHeld, push.StateRetrying}} {
		for _, between := range []time.Duration{-time.Hour, -time.Second, -time.Millisecond, 0, time.Millisecond, time.Second, time.Hour} {
			t.Run(fmt.Sprintf("rows %v, the held one %v after the other", rows, between), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &fleet{rows: map[string][]push.Row{}, sends: map[string]int{}, slow: map[string]time.Duration{"n": 2 * time.Second}}
					for _, s := range rows {
						f.rows["n"] = append(f.rows["n"], row("n", "d1", 0, s))
					}
					tier, hold := make(records), make(records)
					stopTier, stopHold := f.runWorker(t, tier), f.runWorker(t, hold)
					wait := func(d time.Duration) { time.Sleep(max(d, 0)) }
					var both sync.WaitGroup
					both.Go(func() {
						wait(-between)
						tier.put(item("n", func(it *pipeline.Item) {
							it.Attempt, it.Devices, it.HandedAs = 1, []string{"d1"}, push.StateRetrying
						}), true)
					})
					both.Go(func() {
						wait(between)
						hold.put(item("n", func(it *pipeline.Item) { it.Hops, it.Devices, it.HandedAs = 1, []string{"d1"}, push.StateHeld }), true)
					})
					both.Wait()
					time.Sleep(time.Minute)
					stopTier()
					stopHold()
					f.out.Wait()
					if n := f.sends["n"]; n < 1 || n > len(rows) {
						t.Errorf("got %d sends, rows %v", n, f.rows["n"])
					}
				})
			})
		}
	}
}
