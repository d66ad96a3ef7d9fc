package sim

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Clock is the simulated time: what tokens expire by, what quotas and windows
// are counted by, and what schedules run on. It may be set off from the real
// one and run faster or slower. Latency is not simulated time. Safe for
// concurrent use.
type Clock struct {
	real  func() time.Time
	hands atomic.Pointer[hands]

	mu      sync.Mutex // of Set, which reads before it writes
	start   time.Time  // simulated
	changed chan struct{}
}

// hands are a moment of both times, and how fast the simulated one goes on
// from there.
type hands struct {
	real, simulated time.Time
	rate            float64
}

func newClock(real func() time.Time) *Clock {
	c := &Clock{real: real, start: real(), changed: make(chan struct{})}
	c.hands.Store(&hands{c.start, c.start, 1})
	return c
}

// Now is the simulated time.
func (c *Clock) Now() time.Time {
	h, now := c.hands.Load(), c.real()
	if h.rate == 1 {
		return h.simulated.Add(now.Sub(h.real))
	}
	return h.simulated.Add(time.Duration(float64(now.Sub(h.real)) * h.rate))
}

// Set moves the simulated time by a step, which may be negative, and lets it
// run at a rate from then on: 60 makes an hour pass in a minute. The rate is
// above 0.
func (c *Clock) Set(step time.Duration, rate float64) error {
	if err := checkRate(rate); err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.real()
	c.hands.Store(&hands{now, c.Now().Add(step), rate})
	close(c.changed)
	c.changed = make(chan struct{})
	return nil
}

func checkRate(rate float64) error {
	if !(rate > 0) || rate > 1e6 {
		return fmt.Errorf("rate %v is not above 0 and at most a million", rate)
	}
	return nil
}

// Elapsed is the simulated time since the start: what schedules count from.
func (c *Clock) Elapsed() time.Duration { return c.Now().Sub(c.start) }

// until is how long a simulated time takes to pass, and a channel that is
// closed when the clock is set meanwhile.
func (c *Clock) until(simulated time.Duration) (time.Duration, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passing(simulated), c.changed
}

// passing is how long a simulated time takes to pass at the present rate.
func (c *Clock) passing(simulated time.Duration) time.Duration {
	return time.Duration(min(float64(simulated)/c.hands.Load().rate, float64(1<<62)))
}
