package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// partition is a source of one retry partition, whose window is bounded as that
// of a real one: it hands out no more than that beyond what is committed. Those
// before others are retries, the rest were only held.
type partition struct {
	*world
	tracker *pipeline.Tracker
	records int
	others  int
	attempt int
	next    int // guarded by world.mu
}

const retryWindow = 200

func newPartition(w *world, records, others, attempt int) *partition {
	id := push.Partition{Topic: "push.retry.30s"}
	return &partition{world: w, records: records, others: others, attempt: attempt,
		tracker: pipeline.NewTracker(pipeline.TrackerOptions{Partition: id, Capacity: retryWindow, Retry: true})}
}

func (p *partition) Next(ctx context.Context) (*pipeline.Batch, error) {
	for {
		p.mu.Lock()
		n := min(50, p.records-p.next, p.tracker.Free())
		from := p.next
		p.next += n
		p.mu.Unlock()
		if n > 0 {
			b := &pipeline.Batch{Partition: p.tracker.Partition(), Tracker: p.tracker, Retry: true, Items: make([]pipeline.Item, n)}
			for i := range b.Items {
				it := &b.Items[i]
				it.Partition, it.Offset = b.Partition, int64(from+i)
				if from+i < p.others {
					it.Attempt = p.attempt
				}
				it.Message = push.Message{ID: fmt.Sprint(from + i), UserID: "u"}
			}
			p.tracker.Admit(b)
			return b, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *partition) Commit(context.Context) error {
	if next, ok := p.tracker.Watermark(); ok {
		p.tracker.Committed(next)
	}
	return nil
}

// Stage: the first records are for APNs, the others for FCM.
func (*partition) Name() pipeline.Step { return "devices" }

func (p *partition) Apply(_ context.Context, b *pipeline.Batch) error {
	for i := range b.Items {
		it := &b.Items[i]
		r := push.Route{Platform: push.APNS, App: "shop"}
		if int(it.Offset) >= p.others {
			r.Platform = push.FCM
		}
		it.Deliveries = []pipeline.Delivery{{Item: it, Route: r, Device: pipeline.Device{Hash: it.ID}, Expires: push.At(time.Now().Add(time.Hour))}}
	}
	return nil
}

// One route's retries wait for tokens that come one a second, or hardly ever.
// Behind them in the same partition are another's, which need none: they do not
// wait for those. What waits goes to the hold topic, which is no attempt, and
// comes back when its turn may have come.
func TestRetriesWithoutTokensFillNoPartition(t *testing.T) {
	for _, tt := range []struct {
		why     string
		attempt int
		broke   func(o *gates.Options)
	}{
		{"retries", 1, func(o *gates.Options) { o.Retries = gates.BudgetOptions{Floor: 1, Burst: 1} }},
		{"last tries", 3, func(o *gates.Options) { o.DeadLetters = gates.BudgetOptions{Floor: 1, Burst: 1} }},
		{"retries that get none at all", 1, func(o *gates.Options) { o.Retries = gates.BudgetOptions{Floor: 1e-6, Burst: 1} }},
	} {
		t.Run(tt.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1)
				w.faults = false
				o := gates.DefaultOptions()
				tt.broke(&o)
				w.open(t, o)
				in := newPartition(w, 1100, 1000, tt.attempt)
				failing := &counting{provider: provider{w: w}}
				fine := &stopping{provider: provider{w: w}}
				p := w.pipelineFrom(t, in, failing, fine)
				ctx, stop := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { _ = p.Run(ctx) })
				start := time.Now()
				time.Sleep(2 * time.Minute)
				w.mu.Lock()
				sent := len(w.accepted)
				early, late := start.Add(24*time.Hour), start
				for _, due := range w.due {
					early, late = earliest(early, due), latest(late, due)
				}
				held, tried := len(w.due), failing.sent[tt.attempt]
				w.mu.Unlock()
				if sent != 100 {
					t.Errorf("after 2 minutes: got %d sends to the other route, want 100 (%d to this one, %d held)", sent, tried, held)
				}
				if held < 900 || held+tried != 1000 {
					t.Errorf("got %d held and %d sent, want at least 900 held and 1000 in all", held, tried)
				}
				if early.Sub(start) < 30*time.Second || late.Sub(start) > 6*time.Minute {
					t.Errorf("got records held until %v to %v, want 30s to 6m", early.Sub(start), late.Sub(start))
				}
				stop()
				run.Wait()
				failing.out.Wait()
				fine.out.Wait()
			})
		})
	}
}

// Held for the least time that there is, some would expire: they wait for their
// tokens in place, as long as they may be sent.
func TestWhatExpiresSoonWaitsForItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.faults = false
		o := gates.DefaultOptions()
		o.Retries = gates.BudgetOptions{Floor: 0.1, Burst: 1} // one at once, and one after 10 s
		w.open(t, o)
		failing := &counting{provider: provider{w: w}}
		p := w.pipelineFrom(t, newPartition(w, 100, 100, 1), failing, failing)
		p.Options().Stages[0] = shortLived{}
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = p.Run(ctx) })
		time.Sleep(time.Minute)
		stop()
		run.Wait()
		failing.out.Wait()
		expired := 0
		for id, rows := range w.rows {
			if rows[0].State == push.StateExpired {
				expired++
			}
			if short := len(id) == 1; short && w.held[id] > 0 {
				t.Errorf("%s was held although it expires in 25 s", id)
			}
		}
		if failing.sent[1] < 3 || failing.sent[1]+expired < 10 || len(w.held) < 80 {
			t.Errorf("got %d sent, %d expired, %d held", failing.sent[1], expired, len(w.held))
		}
	})
}

// shortLived lets the first ten live for 25 s, and the others for an hour.
type shortLived struct{ oneDevice }

func (s shortLived) Apply(ctx context.Context, b *pipeline.Batch) error {
	if err := s.oneDevice.Apply(ctx, b); err != nil {
		return err
	}
	for i := range b.Items {
		if b.Items[i].Offset < 10 {
			b.Items[i].Deliveries[0].Expires = push.At(time.Now().Add(25 * time.Second))
		}
	}
	return nil
}

// Three partitions have all their records open on a slow route, one after the
// other: each moves from the start, and not only when those before it are sent.
func TestPartitionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(1, 3, 1000)
		pr := &slow{w: w, wait: 500 * time.Millisecond}
		p := w.pipelineTo(t, 50, pr, pr)
		p.Options().StageWorkers = 1 // with more, a partition's second batch may be ahead of its first
		stop := w.starts(t, p)
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		least := min(w.commits[0], w.commits[1], w.commits[2])
		if least < 100 {
			t.Errorf("after 10 s: commits at %v of 2000", w.commits)
		}
		w.mu.Unlock()
		stop()
		pr.out.Wait()
		// What was given back at the stop had no turn: the watchdog counts by it how
		// many others were served.
		served := 0
		for _, l := range p.Progress() {
			served += int(l.Completed)
			if l.Out != 0 {
				t.Errorf("%d deliveries are out of their line after the stop, want 0", l.Out)
			}
		}
		if most := len(w.accepted) + 2*50; served > most || served < len(w.accepted) {
			t.Errorf("got %d completed in the lines and %d sent", served, len(w.accepted))
		}
	})
}

// A partition leaves whose deliveries wait at the head of a line together with
// another's that stays. Nothing of it was sent, so it is given back at once, and
// not when the lease is renewed or a place of the window is free.
func TestAPartitionLeavesWhatOthersWaitWith(t *testing.T) {
	const partitions = 60 // more than there are places in the windows of two routes
	for why, tt := range map[string]struct{ lease, answer time.Duration }{
		"the lease has lapsed": {-time.Second, time.Second},
		"the window is full":   {time.Hour, time.Minute},
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(5)
				w.faults, w.lease = false, new(lease)
				w.lease.Extend(time.Now().Add(tt.lease))
				w.fill(partitions, 3)
				pr := &slow{w: w, wait: tt.answer}
				stop := w.starts(t, w.pipelineTo(t, 20, pr, pr)) // in groups of 5
				time.Sleep(5 * time.Second)
				unsent := 0
				for id := range int32(partitions) {
					if w.sentOf(id) > 0 {
						continue
					}
					unsent++
					drain, cancel := context.WithTimeout(t.Context(), time.Second)
					if err := w.trackers[id].Drain(drain); err != nil {
						t.Errorf("draining partition %d, of which nothing was sent: %v", id, err)
					}
					cancel()
				}
				if unsent < partitions-2*20 {
					t.Errorf("setup: only %d partitions have no sends", unsent)
				}
				w.lease.Extend(time.Now().Add(time.Hour))
				stop()
				pr.out.Wait()
			})
		})
	}
}

// sentOf is how many sends of a partition were begun.
func (w *world) sentOf(id int32) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	own := fmt.Sprintf("id-%d-", id)
	devices := slices.AppendSeq(slices.Collect(maps.Keys(w.exposed)), maps.Keys(w.accepted))
	for _, device := range devices {
		if strings.HasPrefix(device, own) {
			n++
		}
	}
	return n
}
