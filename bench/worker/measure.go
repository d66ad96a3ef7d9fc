//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/bench/usage"
)

// Run starts the servers, sends one-time passwords through a worker that has nothing else to do, makes the backlog, and
// measures a worker from the end of the warm-up to the beginning of the cool-down, or the last commit, with one-time
// passwords all the while. It fails when a push or a status row is missing afterwards, or is there too often.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	w, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	codes, err := newPasswords(w)
	if err != nil {
		return nil, err
	}
	defer codes.writer.Close()
	if err := w.sim.Note(ctx, codes.hashes()); err != nil {
		return nil, err
	}
	r := &Result{Date: time.Now().UTC().Truncate(time.Second), Cores: runtime.NumCPU(), Go: runtime.Version()}
	r.describe(&o, w.Config)
	if err := w.unloaded(ctx, &o, codes, r); err != nil {
		return nil, err
	}
	before, err := w.sim.Total(ctx)
	if err != nil {
		return nil, err
	}
	b := &backlog{people: w.people}
	if o.Rate == 0 {
		if b, err = produce(ctx, &o, w.Fleet, w.people); err != nil {
			return nil, err
		}
	}
	if err := w.measure(ctx, &o, codes, r, &checking{b, before}); err != nil {
		return nil, err
	}
	return r, r.plot(o.Plot)
}

// checking is what has to be there at the end.
type checking struct {
	*backlog
	before int // pushes accepted before any of it was produced
}

// finish waits until all is committed, looks for every push and row, and ends the worker.
func (w *world) finish(ctx context.Context, o *Options, team workers, c *checking, codes []latency.Sent) (checked int, err error) {
	if err := w.AwaitDone(ctx); err != nil { // what was to be tried again
		return 0, err
	}
	for _, p := range codes {
		c.add(p.ID, p.User)
	}
	o.Progress("looking for the pushes and the rows of %d notifications", len(c.ids))
	found, err := c.check(ctx, w.sim, w.store, c.before)
	if err != nil {
		return 0, err
	}
	return found.pushes, team.term(ctx)
}

// calmTime is how long the first one-time passwords do not count: connections are made.
const calmTime = 2 * time.Second

// unloaded sends one-time passwords through a worker without a backlog.
func (w *world) unloaded(ctx context.Context, o *Options, codes *passwords, r *Result) error {
	o.Progress("starting a worker without a backlog")
	team, err := w.startWorkers(ctx, 1)
	if err != nil {
		return err
	}
	o.Progress("one-time passwords for %v, and nothing else", o.Unloaded)
	from := time.Now().Add(calmTime)
	producing, stop := context.WithTimeout(ctx, calmTime+o.Unloaded)
	codes.produce(producing)
	stop()
	list, err := codes.taken()
	if err = errors.Join(context.Cause(ctx), err); err != nil {
		return err
	}
	if _, err := w.finish(ctx, o, team, &checking{&backlog{people: w.people}, 0}, list); err != nil {
		return err
	}
	noted, err := w.sim.Noted(ctx)
	if err != nil {
		return err
	}
	calm, err := waits(list, noted, from, time.Now())
	if err != nil {
		return err
	}
	r.CriticalUnloadedP50, r.CriticalUnloadedP99 = latency.Quantile(calm, 0.5), latency.Quantile(calm, 0.99)
	return nil
}

// moment is all that is known at one end of the measurement.
type moment struct {
	*usage.Account
	metrics     []fleet.Metrics // of each worker
	allocations allocations
	committed   int64
}

func (w *world) now(ctx context.Context, team workers) (m moment, err error) {
	if m.metrics, err = team.metrics(ctx); err != nil {
		return m, err
	}
	if m.allocations, err = takeAllocations(ctx, team); err != nil {
		return m, err
	}
	if m.committed, err = w.Committed(ctx); err != nil {
		return m, err
	}
	m.Account, err = usage.Take(w.pids)
	return m, err
}

// measure starts the worker that counts, takes the accounts at the end of the warm-up and when the notifications are
// committed, and checks that everything is there.
func (w *world) measure(ctx context.Context, o *Options, codes *passwords, r *Result, c *checking) error {
	earlier, err := codes.taken()
	if err != nil {
		return err
	}
	o.Progress("starting what is measured")
	team, err := w.startWorkers(ctx, o.Workers)
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	producing, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { codes.produce(producing) })
	r.began = time.Now()
	if o.Rate > 0 {
		o.Progress("producing %d notifications a second", o.Rate)
		background.Go(func() {
			if err := c.pace(producing, o, w.Fleet); err != nil {
				fail(err)
			}
		})
	}

	if err := w.awaitCommitted(ctx, o, team, r, int64(o.WarmUp)); err != nil {
		return err
	}
	profiling, err := profileCPU(ctx, team)
	if err != nil {
		return err
	}
	start, err := w.now(ctx, team)
	if err == nil {
		err = w.awaitCommitted(ctx, o, team, r, int64(o.WarmUp+o.Notifications))
	}
	var end moment
	if err == nil {
		end, err = w.now(ctx, team)
	}
	stop()
	byPart, share, failed := profiling.stop()
	background.Wait()
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if err := errors.Join(profiling.keep(o.Profiles), end.allocations.keep(o.Profiles)); err != nil {
		return err
	}
	r.Profiled = share
	if done := end.committed - start.committed; done < int64(o.Notifications)/2 {
		return fmt.Errorf("%d of %d notifications were done when the warm-up was seen to be: take more", o.Notifications-int(done), o.Notifications)
	}
	if r.RSS, err = team.peak(); err != nil {
		return err
	}
	r.figures(start, end, byPart, o.Embedded)
	list, err := codes.taken()
	if err != nil {
		return err
	}
	list = list[len(earlier):]
	if r.Checked, err = w.finish(ctx, o, team, c, list); err != nil {
		return err
	}
	return w.latencies(ctx, r, list, c.counted(o), start.At, end.At)
}

// latencies asks the simulator when it accepted what.
func (w *world) latencies(ctx context.Context, r *Result, codes, paced []latency.Sent, from, to time.Time) error {
	noted, err := w.sim.Noted(ctx)
	if err != nil {
		return err
	}
	counted, err := waits(codes, noted, from, to)
	if err != nil {
		return err
	}
	r.CriticalP50, r.CriticalP99 = latency.Quantile(counted, 0.5), latency.Quantile(counted, 0.99)
	if counted, err = waits(paced, noted, time.Time{}, time.Now()); err != nil {
		return err
	}
	r.NotificationP50, r.NotificationP99 = latency.Quantile(counted, 0.5), latency.Quantile(counted, 0.99)
	if r.waits, err = waits(codes, noted, r.began, to); err != nil {
		return err
	}
	r.from, r.to = from, to
	r.accepted, err = w.sim.Rates(ctx)
	return err
}

// sample is how many records were committed at one moment.
type sample struct {
	at        time.Time
	committed int64
}

// How often the committed offsets are read, and progress is told.
const (
	sampleEvery = 50 * time.Millisecond
	sayEvery    = 2 * time.Second
)

// awaitCommitted waits until n records of the backlog are committed, and keeps what it sees.
func (w *world) awaitCommitted(ctx context.Context, o *Options, team workers, r *Result, n int64) error {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	said := time.Now()
	for {
		committed, err := w.Committed(ctx)
		if err != nil {
			return err
		}
		r.committed = append(r.committed, sample{time.Now(), committed})
		if committed >= n {
			return nil
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			o.Progress("%d of %d committed", committed, o.total())
		}
		if err := team.ended(); err != nil {
			return fmt.Errorf("%d of %d committed, and %w", committed, n, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d committed: %w\n%s", committed, n, context.Cause(ctx), w.Logs())
		case <-ticker.C:
		}
	}
}
