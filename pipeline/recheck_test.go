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

// mind is what users want, which may change; and when it was asked.
type mind struct {
	mu    sync.Mutex
	out   bool // all of them opted out
	later bool // none of them now
	away  bool // and cannot be asked
	asked int
}

func (m *mind) change(f func(*mind)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *mind) Recheck(_ context.Context, ds []*pipeline.Delivery) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked += len(ds)
	if m.away {
		return errors.New("redis is away")
	}
	for _, d := range ds {
		switch {
		case m.out:
			d.Verdict, d.Reason = push.Suppressed, push.OptedOutAll
		case m.later:
			d.Verdict, d.Reason = push.Deferred, push.Quiet
		}
	}
	return nil
}

// reading notes when an item's user was read.
type reading struct{ oneDevice }

func (s reading) Apply(ctx context.Context, b *pipeline.Batch) error {
	for i := range b.Items {
		b.Items[i].Read = pipeline.UptimeAt(time.Now())
	}
	return s.oneDevice.Apply(ctx, b)
}

// TestWhatWaitedIsCheckedAgain: a route that takes 50 at a time needs minutes
// for a backlog. What users say meanwhile counts 30 s later at the latest, in
// each mode; what was read just before is not read again; and while nobody can
// be asked, what is old waits.
func TestWhatWaitedIsCheckedAgain(t *testing.T) {
	const after = 30 * time.Second
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(3, 1, 1500)
			w.once = once
			pr := &slow{w: w, wait: 5 * time.Second}
			p := w.pipelineTo(t, 50, pr, pr)
			m := &mind{}
			p.Options().Stages[0], p.Options().Recheck, p.Options().RecheckAfter = reading{}, m, after
			stop := w.starts(t, p)
			time.Sleep(after - time.Second)
			if m.asked > 0 || w.sent() == 0 {
				t.Errorf("once %v: got %d rechecks of fresh records and %d sends; want no recheck and some sends", once, m.asked, w.sent())
			}
			time.Sleep(11 * time.Second)
			m.change(func(m *mind) { m.away = true })
			time.Sleep(after + time.Second)
			sent := w.sent()
			time.Sleep(after)
			stalls, _ := p.Declared()
			if n := w.sent(); n > sent+50 || len(stalls) == 0 || stalls[0].Name != "recheck" {
				t.Errorf("once %v: %d sent while the recheck failed, stalls %v", once, n-sent, stalls)
			}
			m.change(func(m *mind) { m.away, m.out = false, true })
			opted := time.Now()
			w.wait(t)
			if late := pr.lastSent().Sub(opted); late > after {
				t.Errorf("once %v: sent %v after everybody had opted out", once, late)
			}
			time.Sleep(time.Minute)
			stop()
			pr.out.Wait()
			suppressed, delivered := 0, 0
			for _, rows := range w.rows {
				for _, r := range rows {
					switch {
					case r.State == push.StateSuppressed && r.Reason == string(push.OptedOutAll) && r.Device != "":
						suppressed++
					case r.State == push.StateDelivered:
						delivered++
					}
				}
			}
			if suppressed+delivered != 1500-30 || suppressed == 0 || delivered == 0 {
				t.Errorf("once %v: got %d suppressed and %d delivered, want some of both and %d in all", once, suppressed, delivered, 1500-30)
			}
		})
	}
}

// TestWhatWaitedIsPutOff: what may not be sent now, but later, goes to the hold topic for
// half a minute, device by device, in each mode. It is no attempt, and none is lost.
func TestWhatWaitedIsPutOff(t *testing.T) {
	for _, once := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := calm(3, 1, 300)
			w.once = once
			pr := &slow{w: w, wait: 5 * time.Second}
			p := w.pipelineTo(t, 20, pr, pr)
			m := &mind{later: true}
			p.Options().Stages[0], p.Options().Recheck, p.Options().RecheckAfter = reading{}, m, 30*time.Second
			stop := w.starts(t, p)
			w.wait(t)
			time.Sleep(time.Minute)
			stop()
			pr.out.Wait()
			held := 0
			for id, n := range w.held {
				if held += n; w.due[id].IsZero() {
					t.Errorf("once %v: %s is held without a due time", once, id)
				}
			}
			rows := 0
			for _, of := range w.rows {
				for _, r := range of {
					if r.State == push.StateHeld && r.Reason == string(push.Quiet) && r.Device != "" {
						rows++
					}
				}
			}
			if held == 0 || rows < held || len(w.retried) > 0 || len(w.dead) != 300/50 {
				t.Errorf("once %v: got %d held, %d HELD rows, %d retried, %d dead", once, held, rows, len(w.retried), len(w.dead))
			}
		})
	}
}
