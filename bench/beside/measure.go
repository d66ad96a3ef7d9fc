//go:build linux

package beside

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/bench/usage"
)

// Run starts everything and measures. Messages that never arrive are counted and no error: see Result.Err.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	w, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	audience, err := w.subscribe(ctx, &o)
	if err != nil {
		return nil, err
	}
	if err := w.sim.Note(ctx, devicesOf(w.people)); err != nil {
		return nil, err
	}
	r := &Result{Subscribers: o.Subscribers, SameLane: o.SameLane, MessagesPerSecond: o.Rate, WarmUp: o.WarmUp, LagTime: o.LagTime.Seconds(), FanoutRate: o.FanoutRate, Latency: o.Latency.Seconds() * 1000,
		Workers: o.Workers, Partitions: o.Partitions, Cores: runtime.NumCPU(), Go: runtime.Version()}
	m := &messages{caller: shop, url: "http://" + w.address + "/v1/messages", people: w.people}
	return r, w.measure(ctx, &o, r, m, &fanout{w: w, o: &o, audience: audience})
}

// measure sends single messages all the while.
func (w *world) measure(ctx context.Context, o *Options, r *Result, m *messages, f *fanout) error {
	sending, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { latency.Every(sending, time.Second/time.Duration(o.Rate), m.send) })

	o.Progress("%d messages a second, and nothing else", o.Rate)
	if err := rest(ctx, seconds(o.WarmUp)); err != nil {
		return err
	}
	idle, err := w.span(func() error { return rest(ctx, seconds(o.Idle)) })
	if err != nil {
		return err
	}
	o.Progress("a message to %d subscribers", o.Subscribers)
	beside, err := w.span(func() error {
		if err := f.begin(ctx); err != nil {
			return err
		}
		return f.follow(ctx)
	})
	if err != nil {
		return err
	}
	stop()
	background.Wait()
	o.Progress("waiting for the last of the messages")
	if err := w.settle(ctx, r, m, idle, beside); err != nil {
		return err
	}
	r.fanout(f, beside)
	return w.ended()
}

// rest lets time go by.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// span is a time in which messages count.
type span struct {
	from, to time.Time
	*usage.Spent
}

// span is the time that f takes, and what was used in it.
func (w *world) span(f func() error) (*span, error) {
	before, err := usage.Take(w.pids)
	if err != nil {
		return nil, err
	}
	if err := f(); err != nil {
		return nil, err
	}
	after, err := usage.Take(w.pids)
	if err != nil {
		return nil, err
	}
	return &span{before.At, after.At, after.Since(before)}, nil
}

// settle waits until all messages that were accepted have arrived, or none does any more, and notes how long they took.
func (w *world) settle(ctx context.Context, r *Result, m *messages, idle, beside *span) error {
	sent, refused, why := m.soFar()
	grown, arrived := time.Now(), 0
	for {
		noted, err := w.sim.Noted(ctx)
		if err != nil {
			return err
		}
		all, missing := latency.Waits(sent, noted, time.Time{}, time.Now())
		if len(all) > arrived {
			grown, arrived = time.Now(), len(all)
		}
		if len(missing) == 0 || time.Since(grown) >= patience {
			r.Sent, r.Refused, r.Undelivered = len(sent), refused, len(missing)
			r.messages(all, missing, why, idle, beside)
			return nil
		}
		if err := errors.Join(w.ended(), rest(ctx, lookPause)); err != nil {
			return err
		}
	}
}
