//go:build linux

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// Run starts everything and measures. It fails when something is not answered as it must be, or when another number of
// records is in Kafka than was acknowledged.
func Run(ctx context.Context, o Options) (r *Result, err error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	w, err := open(ctx, &o)
	if err != nil {
		return nil, err
	}
	defer w.close()
	r = &Result{Seconds: o.Seconds, Connections: o.Connections, Batches: o.Batches, Lines: o.Lines, Queries: o.Queries, Receipts: o.Receipts, Each: o.Each,
		Idle: o.Idle, Partitions: o.Partitions, MostRounds: o.Rounds, OnlyFanout: o.OnlyFanout, Embedded: o.Embedded, Cores: runtime.NumCPU(), Go: runtime.Version()}
	if r.StartRSS, err = usage.Memory(w.gateway.PID()); err != nil {
		return nil, err
	}
	measure := w.measure
	if o.OnlyFanout {
		measure = w.fanOut
	}
	if err := measure(ctx, &o, r); err != nil {
		return nil, fmt.Errorf("%w%s", err, w.gateway.Tail())
	}
	if err := w.endFanouts(ctx); err != nil {
		return nil, err
	}
	if r.PeakRSS, err = usage.PeakMemory(w.gateway.PID()); err != nil {
		return nil, err
	}
	// The kernel reads its counters without those that processors have not added yet, so that
	// a peak may be below what was read earlier by as many pages.
	r.PeakRSS = max(r.PeakRSS, r.IdleRSS, r.StartRSS)
	if code, err := w.gateway.Term(ctx); err != nil || code != 0 {
		return nil, errors.Join(fmt.Errorf("the gateway ended with status %d%s", code, w.gateway.Tail()), err)
	}
	if n, err := w.records(ctx); err != nil || n != r.Acknowledged {
		return nil, errors.Join(fmt.Errorf("%d records are in Kafka when the gateway is gone, and %d were acknowledged", n, r.Acknowledged), err)
	}
	r.judge()
	return r, nil
}

func (w *world) measure(ctx context.Context, o *Options, r *Result) (err error) {
	base := spec{Address: w.address, Key: w.caller.Key, WarmUp: seconds(o.WarmUp), Measure: seconds(o.Seconds), Lines: 1}
	s := base
	s.Kind, s.Connections = single, o.Connections
	if r.Single, _, err = w.load(ctx, o, r, "single messages, as fast as they are answered", &s, 1); err != nil {
		return err
	}
	s.Rate = r.Single.Rate / 2
	if r.SingleHalf, _, err = w.load(ctx, o, r, fmt.Sprintf("single messages, %.0f a second", s.Rate), &s, 1); err != nil {
		return err
	}
	s = base
	s.Kind, s.Connections, s.Lines, s.Keep = batch, o.Batches, o.Lines, o.Receipts
	var kept []sent
	if r.Batch, kept, err = w.load(ctx, o, r, fmt.Sprintf("batches of %d", o.Lines), &s, o.Lines); err != nil {
		return err
	}
	if !o.Embedded {
		if err := w.ask(ctx, o, r, base, kept); err != nil {
			return err
		}
		if o.Subscribers > 0 {
			if err := w.fanOut(ctx, o, r); err != nil {
				return fmt.Errorf("a fan-out: %w", err)
			}
		}
	}
	if o.Idle == 0 {
		return nil
	}
	s = base
	s.Kind, s.Connections = idle, o.Idle
	return w.idle(ctx, o, r, &s)
}

// idle measures the memory of the gateway with connections that do nothing; where there is a
// process of fan-outs, while it works on a message.
func (w *world) idle(ctx context.Context, o *Options, r *Result, s *spec) error {
	o.Progress("%d idle connections", o.Idle)
	return w.counted(ctx, r, func() (*callerFigures, error) {
		fannedOut := 0
		f, err := w.call(ctx, o, s, func(int) (err error) {
			var sending sync.WaitGroup
			var failed error
			over := make(chan struct{}) // closed when nothing is sent any more
			if w.fanouts != nil {
				fannedOut = o.Subscribers
				sending.Go(func() { _, failed = w.sendToAll(ctx, o) })
			}
			go func() {
				defer close(over)
				sending.Wait()
			}()
			r.IdleRSS, err = w.idleMemory(ctx, seconds(o.Seconds), over)
			<-over
			return errors.Join(err, failed)
		}, nil)
		if err == nil {
			f.Messages += int64(fannedOut)
		}
		r.IdleFanout = fannedOut
		return f, err
	})
}

// ask measures queries about messages, which are delivered first.
func (w *world) ask(ctx context.Context, o *Options, r *Result, s spec, messages []sent) (err error) {
	if len(messages) < o.Each {
		return fmt.Errorf("only %d messages were acknowledged in batches: too few to ask for", len(messages))
	}
	if err := w.deliver(ctx, messages); err != nil {
		return err
	}
	s.Kind, s.Connections, s.Lines = query, o.Queries, o.Each
	for _, m := range messages {
		s.Receipts = append(s.Receipts, m.Receipt)
	}
	r.Query, _, err = w.load(ctx, o, r, fmt.Sprintf("receipts, %d a query", o.Each), &s, o.Each)
	return err
}

// load makes one measurement. each is how many messages or receipts a request is about.
func (w *world) load(ctx context.Context, o *Options, r *Result, name string, s *spec, each int) (l *Load, kept []sent, err error) {
	o.Progress("%s", name)
	for round := 1; ; round++ {
		if l, kept, err = w.round(ctx, o, r, s, each); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		if l.Rounds = round; !o.again(round, l.Compiling) {
			return l, kept, nil
		}
	}
}

// round is one of a measurement.
func (w *world) round(ctx context.Context, o *Options, r *Result, s *spec, each int) (*Load, []sent, error) {
	var before, after *account
	var f *callerFigures
	err := w.counted(ctx, r, func() (_ *callerFigures, err error) {
		var profile *profiling
		f, err = w.call(ctx, o, s, func(caller int) (err error) {
			if before, err = w.take(ctx, caller); err == nil {
				profile = w.profile(ctx, o, s)
			}
			return err
		}, func(caller int) (err error) {
			after, err = w.take(ctx, caller)
			return err
		})
		return f, errors.Join(err, profile.wait())
	})
	if err != nil {
		return nil, nil, err
	}
	l := loadBetween(before, after, f, each)
	o.Progress("  %.0f/s, gateway %.2f us, %.1f allocations", l.Rate, l.GatewayCPU, l.Allocations)
	return l, f.Kept, nil
}

// counted lets callers call, and fails unless Kafka has as many records more as were acknowledged.
func (w *world) counted(ctx context.Context, r *Result, call func() (*callerFigures, error)) error {
	f, err := call()
	if err != nil {
		return err
	}
	r.Acknowledged += f.Messages
	n, err := w.records(ctx)
	if err != nil {
		return err
	}
	if n != r.Acknowledged {
		return fmt.Errorf("%d records are in Kafka, and %d were acknowledged so far", n, r.Acknowledged)
	}
	return nil
}

// call runs a process of callers. It calls begins and ends, with its process id, when it says that what counts does. What is
// idle has no end.
func (w *world) call(ctx context.Context, o *Options, s *spec, begins, ends func(pid int) error) (*callerFigures, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	told, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	defer told.Close()
	var stderr bytes.Buffer
	cmd := exec.Command(o.Caller[0], o.Caller[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	p, err := local.StartProcess(cmd)
	if err = errors.Join(err, in.Close(), out.Close()); err != nil {
		return nil, err
	}
	defer p.End(time.Second)
	defer context.AfterFunc(ctx, func() { p.End(0) })() // which ends what is told
	if _, err := feed.Write(text); err != nil {
		return nil, fmt.Errorf("telling the callers what to do: %w", err)
	}
	for dec := json.NewDecoder(told); ; {
		var e event
		if err := dec.Decode(&e); err != nil {
			<-p.Done()
			return nil, fmt.Errorf("the callers have ended (%w): %s", errors.Join(p.Err(), context.Cause(ctx)), bytes.TrimSpace(stderr.Bytes()))
		}
		switch {
		case e.Failed != "":
			return nil, errors.New(e.Failed)
		case e.Figures != nil:
			return e.Figures, nil
		case e.Begins:
			err = begins(p.PID())
		case e.Ends:
			err = ends(p.PID())
		}
		if err != nil {
			return nil, err
		}
	}
}

// idlePause is how often the memory of a gateway is looked at that does nothing.
const idlePause = 100 * time.Millisecond

// idleMemory is the most that the gateway has resident in a time in which its connections do nothing, and until over is
// closed, in MiB.
func (w *world) idleMemory(ctx context.Context, during time.Duration, over <-chan struct{}) (most float64, err error) {
	for began := time.Now(); ; {
		rss, err := usage.Memory(w.gateway.PID())
		if err != nil {
			return 0, err
		}
		most = max(most, rss)
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(idlePause):
		}
		select {
		case <-over:
			if time.Since(began) >= during {
				return most, nil
			}
		default:
		}
	}
}

// profiling is a profile that is being taken.
type profiling struct {
	taking sync.WaitGroup
	err    error
}

// profile takes one of what counts, if they are wanted.
func (w *world) profile(ctx context.Context, o *Options, s *spec) *profiling {
	p := &profiling{}
	if o.Profiles == "" {
		return p
	}
	p.taking.Go(func() {
		taken, err := w.gateway.Profile(ctx, fmt.Sprintf("profile?seconds=%d", max(1, int(o.Seconds))))
		if err == nil {
			err = os.WriteFile(filepath.Join(o.Profiles, fmt.Sprintf("gateway-%s-%.0f.pprof", s.Kind, s.Rate)), taken, 0o600)
		}
		p.err = err
	})
	return p
}

func (p *profiling) wait() error {
	if p == nil {
		return nil
	}
	p.taking.Wait()
	return p.err
}
