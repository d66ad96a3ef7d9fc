//go:build linux

package gates

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Spike is what happens when ten times the usual comes, nine tenths of it onto a
// hundred users. Batches come at fixed times, whether or not those before them
// are done, and take as long as from there to their end.
type Spike struct {
	HotUsers int `json:"hot_users"`
	// Notifications a second: Options.UsualRate, and ten times of it.
	UsualRate float64 `json:"usual_per_second"`
	Rate      float64 `json:"per_second"`
	Reached   float64 `json:"reached_per_second"` // in the spike
	UsualP99  float64 `json:"usual_p99_ms"`       // of a batch
	P99       float64 `json:"p99_ms"`
	RatioP99  float64 `json:"ratio_p99"`
	WorkerCPU float64 `json:"worker_cpu_us"` // with the making of the notifications
	RedisCPU  float64 `json:"redis_cpu_us"`
	// Allowed is how many the hot users got, of Offered.
	Allowed int64 `json:"hot_allowed"`
	Offered int   `json:"hot_offered"`
	// Wrong is how many more or fewer each hot user got than the caps leave him,
	// added up, with those that others did not get.
	Wrong int64 `json:"wrong_decisions"`
}

const (
	usualPart = 20
	mostUsual = 10_000_000
)

// spike follows after the passes, in which rate was measured.
func (s *session) spike(ctx context.Context, o *Options, rate float64) (Spike, error) {
	usual, spike := o.batches()
	r := Spike{HotUsers: hotUsers, UsualRate: cmp.Or(o.UsualRate, rate/usualPart), Offered: spike * (batchSize - usualInSpike)}
	r.Rate = spikeTimes * r.UsualRate
	c := newCounts(s.people)
	first := (1 + o.Passes) * o.Users / batchSize
	batch := func(fill func(l *load, k int)) func(ctx context.Context, l *load, k int) error {
		return func(ctx context.Context, l *load, k int) error {
			fill(l, k)
			if err := s.judge(ctx, l); err != nil {
				return err
			}
			c.count(l)
			return nil
		}
	}
	o.Progress("%d batches at the usual rate, %.0f/s", usual, r.UsualRate)
	calm, _, err := s.paced(ctx, usual, r.UsualRate, batch(func(l *load, k int) { l.fill(s.people, first+k) }))
	if err != nil {
		return r, err
	}
	o.Progress("%d batches in the spike, %.0f/s", spike, r.Rate)
	from := (first + usual) * batchSize
	hot, all, err := s.paced(ctx, spike, r.Rate, batch(func(l *load, k int) { l.fillSpike(s.people, from, k) }))
	if err != nil {
		return r, err
	}
	r.Reached, r.WorkerCPU, r.RedisCPU = all.rate(), all.each(all.own), all.redisEach()
	r.UsualP99, r.P99 = p99(calm), p99(hot)
	r.RatioP99 = r.P99 / r.UsualP99
	r.Allowed, r.Wrong = c.verdict()
	return r, nil
}

// paced does n batches that come at a rate, and says how long each took from when
// it came, and what all of them together took.
func (s *session) paced(ctx context.Context, n int, rate float64, do func(ctx context.Context, l *load, k int) error) ([]time.Duration, spent, error) {
	every := time.Duration(batchSize / rate * float64(time.Second))
	took := make([]time.Duration, n)
	all, err := s.watch(ctx, n, func(ctx context.Context, l *load, k int, start time.Time) error {
		comes := start.Add(time.Duration(k) * every)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(comes)):
		}
		if err := do(ctx, l, k); err != nil {
			return err
		}
		took[k] = time.Since(comes)
		return nil
	})
	return took, all, err
}

// p99 is in ms: the least that 99 of 100 do not exceed.
func p99(took []time.Duration) float64 {
	sorted := slices.Sorted(slices.Values(took))
	return float64(sorted[(99*len(sorted)+99)/100-1]) / float64(time.Millisecond)
}

// counts is what users got. It may be used by several goroutines at once.
type counts struct {
	people *people
	hot    []atomic.Int64 // allowed, of each hot user
	missed atomic.Int64   // of the usual traffic, none of which is to be refused
}

func newCounts(p *people) *counts { return &counts{people: p, hot: make([]atomic.Int64, hotUsers)} }

func (c *counts) count(l *load) {
	for i := range l.Items {
		it, user := &l.Items[i], int(l.users[i])
		allowed := it.Allowed && it.Verdict == push.Undecided && len(it.Deliveries) == 1
		switch _, hot := c.people.hot(user); {
		case hot && allowed:
			c.hot[user-c.people.usual].Add(1)
		case !hot && !allowed:
			c.missed.Add(1)
		}
	}
}

// verdict is how many the hot users got, and how many decisions were wrong.
func (c *counts) verdict() (allowed, wrong int64) {
	wrong = c.missed.Load()
	for i := range c.hot {
		kind, _ := c.people.hot(c.people.usual + i)
		got := c.hot[i].Load()
		allowed += got
		wrong += max(got-int64(kind.cap()), int64(kind.cap())-got)
	}
	return allowed, wrong
}
