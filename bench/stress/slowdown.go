//go:build linux

package stress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pushfleet/pushfleet/rates"
	"github.com/pushfleet/pushfleet/shards"
)

const (
	// atOnce is how many fleets are slowed down at a time.
	atOnce = 10
	// slowBase is the base of their rates, in sends a second.
	slowBase = 1000
	// calm is how long workers send before one of them gets a 429, and longest how long its news may take.
	calm    = time.Second
	longest = 30 * time.Second
	// look is how often a worker sends and is looked at.
	look = 5 * time.Millisecond
)

// slowdowns times how a fleet slows down, many times.
func slowdowns(ctx context.Context, o *Options, client shards.Client, r *Result) error {
	o.Progress("slowing down %d workers %d times", o.Workers, o.Slowdowns)
	var mu sync.Mutex
	var took []time.Duration // guarded by mu
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range o.Slowdowns {
		group.Go(func() error {
			d, err := slowdown(ctx, o.Workers, client, "fcm/slow-"+strconv.Itoa(i))
			mu.Lock()
			defer mu.Unlock()
			took = append(took, d)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	slices.Sort(took)
	at := func(part float64) float64 { return took[int(part*float64(len(took)-1))].Seconds() * 1000 }
	r.SlowdownP50, r.SlowdownP99 = at(0.5), at(0.99)
	return nil
}

// slowdown is the time from a 429 that one of so many sending workers gets to when all know that the rate is lower.
func slowdown(ctx context.Context, workers int, client shards.Client, name string) (took time.Duration, err error) {
	running, stop := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer stop()
	var all []*rates.Rate
	for i := range workers {
		rs, err := newRates(client, rates.Counted{Name: name, Base: slowBase}, strconv.Itoa(i), 0)
		if err != nil {
			return 0, err
		}
		all = append(all, rs.Of(route))
		ended.Go(func() { rs.Run(running) })
	}
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	began := time.Now()
	quiet := calm + rand.N(calm/5) // so that they are not all at the same place of their rounds
	var refused time.Time
	var before uint32
	for {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-ticker.C:
		}
		now := time.Now()
		for _, r := range all {
			if n, epoch, _ := r.Take(now, false, slowBase/100); n > 0 {
				r.Answered(now, epoch, n, 0, 0)
			}
		}
		switch first := all[rand.N(workers)]; {
		case refused.IsZero() && now.Sub(began) >= quiet:
			before = first.Epoch()
			if slices.ContainsFunc(all, func(r *rates.Rate) bool { return r.Epoch() != before }) {
				return 0, fmt.Errorf("%s: the workers do not agree before anything happens", name)
			}
			first.Answered(now, before, 0, 1, 0)
			refused = now
		case !refused.IsZero() && !slices.ContainsFunc(all, func(r *rates.Rate) bool { return r.Epoch() == before }):
			return now.Sub(refused), nil
		case now.Sub(began) > quiet+longest:
			return 0, fmt.Errorf("%s: a worker has not heard of a 429 for %v", name, longest)
		}
	}
}
