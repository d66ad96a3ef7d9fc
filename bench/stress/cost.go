//go:build linux

package stress

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/rates"
	"github.com/pushfleet/pushfleet/shards"
)

// turn is how often sends are asked for: a rate lets nobody ask again sooner.
const turn = 2 * time.Millisecond

// cost measures what a ticket of a gate costs a send, without a rate and then with one that is just enough.
func cost(ctx context.Context, o *Options, client shards.Client, r *Result) error {
	o.Progress("%d sends a second without a rate", o.Sends)
	without, err := tickets(ctx, o, nil, nil)
	if err != nil {
		return err
	}
	o.Progress("the same under a shared rate")
	rs, err := newRates(client, rates.Counted{Name: "fcm/cost", Base: float64(o.Sends)}, "worker", 0)
	if err != nil {
		return err
	}
	stop := run(ctx, rs)
	defer stop()
	before, err := scripts(ctx, client)
	if err != nil {
		return err
	}
	with, err := tickets(ctx, o, map[push.Route]gates.Rate{route: rs.Of(route)}, nil)
	if err != nil {
		return err
	}
	after, err := scripts(ctx, client)
	if err != nil {
		return err
	}
	r.TicketCPU, r.RateCPU = without.cpu, with.cpu-without.cpu
	r.Sends = float64(with.sends) / with.took.Seconds()
	r.Commands = float64(after-before) / (with.took.Seconds() * 10)
	stop()
	return limitCost(ctx, o, client, r, without.cpu)
}

// run lets rates ask Redis until stop is called, which waits for their end.
func run(ctx context.Context, rs *rates.Rates) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { rs.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// limitCost measures what the limit of a whole fleet adds to a send's ticket: one that is just enough.
func limitCost(ctx context.Context, o *Options, client shards.Client, r *Result, without float64) error {
	o.Progress("the same under a limit of the whole fleet")
	rs, err := newRates(client, rates.Counted{Name: "fcm/free"}, "worker", float64(o.Sends))
	if err != nil {
		return err
	}
	stop := run(ctx, rs)
	defer stop()
	with, err := tickets(ctx, o, nil, rs.Limit().Lane(1))
	if err != nil {
		return err
	}
	r.LimitCPU = with.cpu - without
	return nil
}

// newRates are the rates of one worker, where all that counts is one thing.
func newRates(client shards.Client, c rates.Counted, member string, limit float64) (*rates.Rates, error) {
	return rates.New(client, map[push.Route]rates.Counted{route: c}, rates.Options{Fleet: "stress", Member: member, Limit: limit, Lanes: 3,
		Factors: rates.DefaultFactors(), Metrics: rates.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler)})
}

// used is what some tickets took: cpu is in us a send.
type used struct {
	sends int
	took  time.Duration
	cpu   float64
}

// tickets takes tickets for so many sends a second and returns them, all accepted. lane is what a limit lets through; nil = all.
func tickets(ctx context.Context, o *Options, limits map[push.Route]gates.Rate, lane *rates.Lane) (u used, err error) {
	g := gates.DefaultOptions()
	g.Rates = limits
	gs, err := gates.New([]push.Route{route}, g, gates.NewMetrics(prometheus.NewRegistry()), slog.New(slog.DiscardHandler), time.Now())
	if err != nil {
		return u, err
	}
	gate, result := gs.Of(route), &push.Result{Class: push.Delivered}
	// What was asked for in vain is asked for again.
	waiting, answers := 0, make([]gates.Answer, 0, o.Sends)
	ticker := time.NewTicker(turn)
	defer ticker.Stop()
	began, busy := time.Now(), time.Duration(0)
	if busy, err = usage.OwnCPU(); err != nil {
		return u, err
	}
	for asked := 0; ; {
		select {
		case <-ctx.Done():
			return u, context.Cause(ctx)
		case now := <-ticker.C:
			due := int(now.Sub(began).Seconds() * float64(o.Sends))
			waiting, asked = min(waiting+due-asked, cap(answers)), due
			allowed := waiting
			if lane != nil {
				allowed, _ = lane.Take(now, waiting)
			}
			ticket, n, _, _ := gate.Admit(now, gates.Free, false, allowed)
			if lane != nil {
				lane.Return(now, allowed-n)
			}
			for range n {
				answers = append(answers, gates.Answer{Ticket: ticket, Result: result})
			}
			gates.Return(now, answers)
			answers, waiting, u.sends = answers[:0], waiting-n, u.sends+n
		}
		if u.took = time.Since(began); u.took >= time.Duration(o.Seconds)*time.Second {
			break
		}
	}
	now, err := usage.OwnCPU()
	if err != nil {
		return u, err
	}
	if u.sends == 0 {
		return u, fmt.Errorf("not one send was let through in %v", u.took.Round(time.Second))
	}
	u.cpu = float64((now - busy).Microseconds()) / float64(u.sends)
	return u, nil
}

// scripts is how many scripts Redis was asked to run so far.
func scripts(ctx context.Context, client shards.Client) (n int, err error) {
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, fmt.Errorf("asking Redis what it did: %w", err)
	}
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":calls=")
		if name != "cmdstat_evalsha" && name != "cmdstat_eval" {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		one, err := strconv.Atoi(calls)
		if err != nil {
			return 0, fmt.Errorf("asking Redis what it did: %q", line)
		}
		n += one
	}
	return n, nil
}
