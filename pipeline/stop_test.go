package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// slow answers every delivery after wait, as answer says, and refuses nothing.
// What has Lapsed when its turn comes, after queue, is given back unsent.
type slow struct {
	w      *world
	wait   time.Duration
	queue  time.Duration
	answer func(d *pipeline.Delivery) push.Result // nil: Delivered
	out    sync.WaitGroup

	mu   sync.Mutex
	last time.Time // when it last sent something
}

func (p *slow) Submit(_ context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	for _, d := range ds {
		p.out.Go(func() {
			time.Sleep(p.queue)
			if now := time.Now(); d.Lapsed(now) {
				done([]*pipeline.Delivery{d})
				return
			} else {
				p.mu.Lock()
				p.last = now
				p.mu.Unlock()
			}
			p.w.expose(d, true)
			time.Sleep(p.wait)
			d.Result = push.Result{Class: push.Delivered, Certainty: push.Accepted}
			if p.answer != nil {
				d.Result = p.answer(d)
			}
			if d.Result.Class == push.Delivered {
				p.w.mu.Lock()
				p.w.accepted[d.Device.Hash]++
				p.w.mu.Unlock()
			}
			if d.Result.Certainty == push.NotAccepted {
				p.w.expose(d, false)
			}
			done([]*pipeline.Delivery{d})
		})
	}
	return len(ds), nil
}

func (p *slow) lastSent() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// expose notes that a hard kill now would repeat a send, until its row is there.
func (w *world) expose(d *pipeline.Delivery, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.exposed == nil {
		w.exposed = make(map[string]bool)
	}
	if on {
		w.exposed[d.Device.Hash] = true
		w.mostExposed = max(w.mostExposed, len(w.exposed))
	} else {
		delete(w.exposed, d.Device.Hash)
	}
}

// starts runs p and returns how to stop it: that takes as long as it took.
func (w *world) starts(t *testing.T, p *pipeline.Pipeline) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return func() time.Duration {
		began := time.Now()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		return time.Since(began)
	}
}

// checkStopped checks what a stop in order promises: all that was accepted has
// its row, so that the next owner sends nothing twice, and nothing that was
// committed ahead of its end is left open.
func (w *world) checkStopped(t *testing.T) {
	t.Helper()
	w.lives.check(t)
	w.mu.Lock()
	defer w.mu.Unlock()
	bare, open, unknown := 0, 0, 0
	for device := range w.accepted {
		id := device[:strings.LastIndex(device, "-d")]
		h := push.History{Rows: w.rows[id]}
		if s, _ := h.DeviceState(device); s != push.StateDelivered {
			bare++
		}
	}
	for id, rows := range w.rows {
		h := push.History{Rows: rows}
		for _, r := range rows {
			switch s, _ := h.DeviceState(r.Device); {
			case s == push.StateSending:
				open++
			case s == push.StateUnknown:
				unknown++
			case s == push.StateHeld && w.held[id] == 0:
				t.Errorf("%s is HELD without a record", id)
			}
		}
	}
	if bare > 0 || open > 0 || unknown > 0 {
		t.Errorf("%d of %d accepted sends have no row, %d committed devices are open, %d UNKNOWN; want none: the next owner would send twice or never", bare, len(w.accepted), open, unknown)
	}
	if len(w.accepted) == 0 {
		t.Error("setup: nothing was accepted")
	}
}

// TestStopInOrder: a worker is told to stop with a backlog that is longer than
// its drain. It sends no more, waits for what is under way, and is out in time.
func TestStopInOrder(t *testing.T) {
	for _, tt := range []struct {
		name string
		once bool
		wait time.Duration // of each answer
		at   time.Duration // of the stop
		set  func(*world, *pipeline.Pipeline)
	}{
		{name: "slow answers", wait: 900 * time.Millisecond, at: 2 * time.Second},
		{name: "answers as slow as the deadline", wait: time.Second, at: 2500 * time.Millisecond},
		{name: "filter away", wait: 300 * time.Millisecond, at: 3 * time.Second, set: func(w *world, p *pipeline.Pipeline) { p.Options().Seen = downFilter{w} }},
		{name: "filter hangs", wait: 300 * time.Millisecond, at: 3 * time.Second, set: func(w *world, p *pipeline.Pipeline) { p.Options().Seen = hangingFilter{w} }},
		{name: "nothing is handed over", wait: 300 * time.Millisecond, at: 3 * time.Second, set: func(w *world, p *pipeline.Pipeline) { p.Options().Producer = downProducer{} }},
		{name: "at_most_once", once: true, wait: 900 * time.Millisecond, at: 2 * time.Second},
		{name: "at_most_once, in the middle of an intent", once: true, wait: 300 * time.Millisecond, at: 2*time.Second + 400*time.Microsecond},
		{name: "at_most_once, slow rows", once: true, wait: 300 * time.Millisecond, at: 2 * time.Second, set: func(w *world, p *pipeline.Pipeline) { p.Options().Status = sluggishStatus{w} }},
	} {
		for shift := range 3 {
			t.Run(fmt.Sprint(tt.name, " ", shift), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(3)
					w.faults, w.once = false, tt.once
					w.fill(2, 2500)
					pr := &slow{w: w, wait: tt.wait, queue: 10 * time.Millisecond}
					p := w.pipelineTo(t, 200, pr, pr)
					if tt.set != nil {
						tt.set(w, p)
					}
					stop := w.starts(t, p)
					time.Sleep(tt.at + time.Duration(shift)*437*time.Millisecond)
					told := time.Now()
					took := stop()
					if took > p.Options().Drain {
						t.Errorf("stopping took %v, the drain budget is %v", took, p.Options().Drain)
					}
					if late := pr.lastSent().Sub(told); late > 0 && !tt.once {
						t.Errorf("sent %v after the stop", late)
					}
					pr.out.Wait()
					w.checkStopped(t)
					if _, open := w.undone(); open == 0 {
						t.Error("setup: nothing is left, so the backlog was shorter than the drain")
					}
				})
			})
		}
	}
}

// lateSource hands out one batch, and the others when it is told to stop.
type lateSource struct {
	*world
	first sync.Once
}

func (s *lateSource) Next(ctx context.Context) (*pipeline.Batch, error) {
	first := false
	s.first.Do(func() { first = true })
	if !first {
		<-ctx.Done()
	}
	return s.world.Next(ctx)
}

// TestWhatIsPolledAtTheStopIsNotSent: a batch that comes as the worker is told
// to stop is the next owner's, also of a partition that had none before.
func TestWhatIsPolledAtTheStopIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 2, 300)
		pr := &slow{w: w, wait: 100 * time.Millisecond}
		p := w.pipelineTo(t, 200, pr, pr)
		p.Options().Source = &lateSource{world: w}
		stop := w.starts(t, p)
		time.Sleep(2 * time.Second)
		told := time.Now()
		stop()
		pr.out.Wait()
		if late := pr.lastSent().Sub(told); late >= 0 {
			t.Errorf("sent %v after the stop", late)
		}
		w.checkStopped(t)
	})
}

// undone is how many records are done and not done.
func (w *world) undone() (done, open int) {
	for _, tr := range w.trackers {
		open += tr.Open()
	}
	return len(w.rows), open
}

// TestRunEndsWithoutTheProvider: a provider that never answers does not hold up
// the end.
func TestRunEndsWithoutTheProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 300)
		pr := &slow{w: w, wait: time.Hour}
		p := w.pipelineTo(t, 50, pr, pr)
		stop := w.starts(t, p)
		time.Sleep(2 * time.Second)
		if took := stop(); took > p.Options().Drain {
			t.Errorf("stopping took %v, the drain budget is %v", took, p.Options().Drain)
		}
		pr.out.Wait() // its answers come an hour later, and hit nobody
	})
}

// TestRevokeWhileTheFilterIsAway: groups of ends mix partitions. The one that
// leaves is given back, and does not wait until the filter is back for the
// others.
func TestRevokeWhileTheFilterIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 3, 2000)
		pr := &slow{w: w, wait: 100 * time.Millisecond}
		p := w.pipelineTo(t, 200, pr, pr)
		p.Options().Seen = downFilter{w}
		stop := w.starts(t, p)
		time.Sleep(3 * time.Second)
		began := time.Now()
		drain, cancel := context.WithTimeout(t.Context(), p.Options().Drain)
		defer cancel()
		err := w.trackers[1].Drain(drain)
		if took := time.Since(began); err != nil || took > 3*time.Second {
			t.Errorf("drained in %v: %v, %d open; want an end after the next try of the filter", took, err, w.trackers[1].Open())
		}
		stop()
		pr.out.Wait()
	})
}

// TestStopCommitsNothingThatHasNoEnd: the DLQ or the status store is away when
// a worker is told to stop, until it is out. What has no row by then is not
// committed, whether it was to be sent or was decided before.
func TestStopCommitsNothingThatHasNoEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		set  func(*world, *pipeline.Pipeline)
	}{
		{"nothing is handed over", func(_ *world, p *pipeline.Pipeline) { p.Options().Producer = downProducer{} }},
		{"status store away", func(w *world, p *pipeline.Pipeline) { p.Options().Status = &downStatus{world: w} }},
	} {
		for _, once := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := calm(3, 2, 500)
				w.once = once
				pr := &slow{w: w, wait: 100 * time.Millisecond}
				p := w.pipelineTo(t, 200, pr, pr)
				tt.set(w, p)
				stop := w.starts(t, p)
				time.Sleep(2 * time.Second)
				if took := stop(); took > p.Options().Drain {
					t.Errorf("%s, once %v: stopping took %v, the drain budget is %v", tt.name, once, took, p.Options().Drain)
				}
				pr.out.Wait()
				if len(w.early) > 0 {
					t.Errorf("%s, once %v: committed without an end: %v", tt.name, once, w.early)
				}
			})
		}
	}
}

// TestRevokeDoesNotWaitForTheBacklog: a route that is slow has minutes of
// others' deliveries ahead of those of a partition that leaves. What is not
// sent is given back at once; what is sent is waited for.
func TestRevokeDoesNotWaitForTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 3, 2000)
		pr := &slow{w: w, wait: 900 * time.Millisecond}
		p := w.pipelineTo(t, 50, pr, pr)
		stop := w.starts(t, p)
		time.Sleep(3 * time.Second)
		began := time.Now()
		drain, cancel := context.WithTimeout(t.Context(), p.Options().Drain)
		defer cancel()
		err := w.trackers[1].Drain(drain)
		if took := time.Since(began); err != nil || took > 2*time.Second {
			t.Errorf("drained in %v: %v", took, err)
		}
		stop()
		pr.out.Wait()
		w.checkStopped(t)
	})
}

// TestOnceRevokeDoesNotOutlastTheDrain: what is committed of a partition that
// leaves is nobody else's to send, but its next owner ends what it finds open
// as UNKNOWN. What cannot be sent within the drain goes to the hold topic.
func TestOnceRevokeDoesNotOutlastTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 3, 2000)
		w.once = true
		pr := &slow{w: w, wait: 900 * time.Millisecond}
		p := w.pipelineTo(t, 20, pr, pr)
		stop := w.starts(t, p)
		time.Sleep(3 * time.Second)
		tracker := w.trackers[1]
		drain, cancel := context.WithTimeout(t.Context(), p.Options().Drain)
		defer cancel()
		if err := tracker.Drain(drain); err != nil {
			t.Errorf("got %d open after the drain (error %v), want 0", tracker.Open(), err)
		}
		if from, open := tracker.Unresolved(); open {
			t.Errorf("intents from offset %d on are open: the next owner would end them UNKNOWN", from)
		}
		tracker.Fence()
		held := 0
		w.mu.Lock()
		for _, n := range w.held {
			held += n
		}
		w.mu.Unlock()
		if held == 0 {
			t.Error("setup: nothing was held, so all committed deliveries fit into the drain")
		}
		stop()
		pr.out.Wait()
		w.checkStopped(t)
	})
}

// TestBoundHoldsForWhatIsHandedOver: whatever the answers, and while another
// device of the item has none, a hard kill repeats no more than the windows.
func TestBoundHoldsForWhatIsHandedOver(t *testing.T) {
	again := func(*pipeline.Delivery) push.Result {
		return push.Result{Class: push.Again, Certainty: push.Ambiguous, Reason: "timeout"}
	}
	type answers struct {
		wait   time.Duration
		answer func(*pipeline.Delivery) push.Result
	}
	const window = 40
	for _, tt := range []struct {
		name      string
		apns, fcm answers
		set       func(*pipeline.Pipeline)
	}{
		{name: "one device answers late", apns: answers{50 * time.Millisecond, again}, fcm: answers{30 * time.Second, nil}},
		{name: "all ambiguous", apns: answers{50 * time.Millisecond, again}, fcm: answers{50 * time.Millisecond, again}},
		{name: "nothing is handed over", apns: answers{50 * time.Millisecond, again}, fcm: answers{50 * time.Millisecond, nil},
			set: func(p *pipeline.Pipeline) { p.Options().Producer = downProducer{} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := calm(3, 1, 3000)
				apns, fcm := &slow{w: w, wait: tt.apns.wait, answer: tt.apns.answer}, &slow{w: w, wait: tt.fcm.wait, answer: tt.fcm.answer}
				p := w.pipelineTo(t, window, apns, fcm)
				if tt.set != nil {
					tt.set(p)
				}
				stop := w.starts(t, p)
				time.Sleep(20 * time.Second)
				w.mu.Lock()
				if w.mostExposed > 2*window || w.mostExposed < window {
					t.Errorf("got %d sends without a row at one moment, want at most %d", w.mostExposed, 2*window)
				}
				w.mu.Unlock()
				stop()
				apns.out.Wait()
				fcm.out.Wait()
			})
		})
	}
}

// TestOthersGoOnWhileNothingIsHandedOver: dead letters and retries wait for
// their topic; what is delivered waits for the status store alone.
func TestOthersGoOnWhileNothingIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 2, 1000)
		pr := &slow{w: w, wait: 50 * time.Millisecond}
		p := w.pipelineTo(t, 200, pr, pr)
		p.Options().Producer = downProducer{}
		stop := w.starts(t, p)
		time.Sleep(time.Minute)
		w.mu.Lock()
		delivered := 0
		for _, ids := range w.ids {
			for i, id := range ids {
				if dead, suppressed := i%50 == 49, i%20 == 3; !dead && !suppressed && len(w.rows[id]) > 0 {
					delivered++
				}
			}
		}
		if want := 2 * (1000 - 20 - 50); delivered < want {
			t.Errorf("got %d of %d delivered in a minute", delivered, want)
		}
		w.mu.Unlock()
		stop()
		pr.out.Wait()
	})
}

// downProducer takes nothing.
type downProducer struct{}

func (downProducer) Produce(ctx context.Context, hs []pipeline.Handover) error {
	for _, h := range hs {
		if h.To == pipeline.ToEvents {
			continue
		}
		return errors.New("not enough replicas")
	}
	return errors.New("unknown topic push.events")
}

// hangingFilter answers only when nobody waits any more.
type hangingFilter struct{ *world }

func (hangingFilter) Add(ctx context.Context, _ []string) error {
	<-ctx.Done()
	return ctx.Err()
}

// sluggishStatus takes most of its time-out for each write.
type sluggishStatus struct{ *world }

func (s sluggishStatus) Write(ctx context.Context, rows []push.Row) error {
	time.Sleep(700 * time.Millisecond)
	return s.world.Write(ctx, rows)
}
