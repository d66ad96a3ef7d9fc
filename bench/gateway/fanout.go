//go:build linux

package gateway

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/usage"
)

// fanoutBody is what is sent to all subscribers.
const fanoutBody = `{"title":"Snow until Sunday","body":"Up to 40 cm above 1,200 m, and fresh tracks on all of the slopes that are open.","data":{"region":"17"}}`

// fanOut seeds a topic, and lets one process of fan-outs make the lane's records of messages to
// it: each is a round, from its acceptance until the receipt says that it has
// ended, which is when Kafka has acknowledged every record. The process goes on.
func (w *world) fanOut(ctx context.Context, o *Options, r *Result) (err error) {
	if err := w.seed(ctx, o); err != nil {
		return err
	}
	p, err := w.StartFanout()
	if err != nil {
		return err
	}
	if err := p.AwaitReady(ctx); err != nil {
		return err
	}
	w.fanouts, w.pids[fanoutProcess] = p, []int{p.PID()}
	o.Progress("a message to %d subscribers", o.Subscribers)
	for round := 1; ; round++ {
		if r.Fanout, err = w.roundOfFanout(ctx, o, r, p); err != nil {
			return errors.Join(err, errors.New(p.Tail()))
		}
		if r.Fanout.Rounds = round; !o.again(round, r.Fanout.Compiling) {
			return nil
		}
	}
}

// endFanouts ends the process of fan-outs, if there is one.
func (w *world) endFanouts(ctx context.Context) error {
	p := w.fanouts
	if p == nil {
		return nil
	}
	w.fanouts = nil
	delete(w.pids, fanoutProcess)
	code, err := p.Term(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the process of fan-outs ended with status %d%s", code, p.Tail())
	}
	return err
}

// roundOfFanout is one message to all.
func (w *world) roundOfFanout(ctx context.Context, o *Options, r *Result, p *fleet.Process) (*Fanout, error) {
	before, err := w.takeFanout(ctx, p)
	if err != nil {
		return nil, err
	}
	profile := w.profileFanout(ctx, o, p)
	var took time.Duration
	err = w.counted(ctx, r, func() (_ *callerFigures, err error) {
		took, err = w.sendToAll(ctx, o)
		return &callerFigures{Messages: int64(o.Subscribers)}, err
	})
	if err != nil {
		return nil, errors.Join(err, profile.wait())
	}
	after, err := w.takeFanout(ctx, p)
	if err = errors.Join(err, profile.wait()); err != nil {
		return nil, err
	}
	f := fanoutBetween(before, after, took, o.Subscribers)
	o.Progress("  %.0f/s, fan-out %.2f us, %.1f allocations", f.Rate, f.FanoutCPU, f.Allocations)
	f.PeakRSS, err = usage.PeakMemory(p.PID())
	return f, err
}

// takeFanout is take for the process of fan-outs: its metrics stand where a gateway's do,
// and this process, which asks for the receipt, is the caller.
func (w *world) takeFanout(ctx context.Context, p *fleet.Process) (*account, error) {
	a, err := w.take(ctx, os.Getpid())
	if err != nil {
		return nil, err
	}
	a.gateway, err = p.Metrics(ctx)
	return a, err
}

// fanoutBetween is what happened between two accounts.
func fanoutBetween(before, after *account, took time.Duration, subscribers int) *Fanout {
	n, spent := float64(subscribers), after.Since(before.Account)
	counted := func(name string) float64 { return (after.gateway.Sum(name) - before.gateway.Sum(name)) / n }
	return &Fanout{Subscribers: subscribers, Seconds: took.Seconds(), Rate: n / took.Seconds(), FanoutCPU: spent.Each(fanoutProcess, n), KafkaCPU: spent.Each(kafkaServer, n), CassandraCPU: spent.Each(cassandra, n),
		Allocations: counted("go_memstats_mallocs_total"), Bytes: counted("go_memstats_alloc_bytes_total"), Others: spent.Others, Compiling: spent.Compiling}
}

// profileFanout takes a profile of the process of fan-outs, if they are wanted.
func (w *world) profileFanout(ctx context.Context, o *Options, process *fleet.Process) *profiling {
	p := &profiling{}
	if o.Profiles == "" {
		return p
	}
	p.taking.Go(func() {
		taken, err := process.Profile(ctx, fmt.Sprintf("profile?seconds=%d", max(1, o.Subscribers/200_000)))
		if err == nil {
			err = os.WriteFile(filepath.Join(o.Profiles, "fanout.pprof"), taken, 0o600)
		}
		p.err = err
	})
	return p
}

// receiptPause is how often a receipt is asked for: so exact is the time that a fan-out takes.
const receiptPause = 50 * time.Millisecond

// sendToAll sends a message to the topic and waits until it has ended.
func (w *world) sendToAll(ctx context.Context, o *Options) (time.Duration, error) {
	began := time.Now()
	a := w.audience()
	receipt, err := a.Send(ctx, fanoutBody)
	if err != nil {
		return 0, err
	}
	for {
		said, err := a.Progress(ctx, receipt)
		if err != nil {
			return 0, err
		}
		if said.Final {
			return time.Since(began), said.All(o.Subscribers)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(receiptPause):
		}
	}
}

func (w *world) audience() *fleet.Audience {
	return &fleet.Audience{Name: "everybody", Service: "promotional", Caller: w.caller, Address: w.address}
}

// seed makes the topic and writes its subscribers.
func (w *world) seed(ctx context.Context, o *Options) error {
	o.Progress("writing %d subscribers", o.Subscribers)
	a := w.audience()
	if err := a.Make(ctx, w.gateway); err != nil {
		return err
	}
	return w.Subscribe(ctx, a.Name, o.Subscribers, func(i int) string { return fmt.Sprintf("user-%08d", i) })
}
