//go:build linux

// Package latency is how long notifications took from being sent until the simulator accepted them: those that are sent
// at a fixed rate beside something else, to users whose acceptances it writes down.
package latency

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/servers"
)

// Sent is one notification whose acceptance the simulator writes down.
type Sent struct {
	ID   string
	User int       // as the crowd numbers them
	At   time.Time // when it was sent, or was to be
}

// Wait is how long one took until a provider accepted it.
type Wait struct {
	At   time.Time // when it was sent
	Took time.Duration
}

// Every sends one after the other until ctx ends, whether those before have arrived or not, and returns when all sends
// have. They are numbered from 0; each gets the time at which it was due.
func Every(ctx context.Context, pause time.Duration, send func(n int, due time.Time)) {
	began := time.Now()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	var sending sync.WaitGroup
	defer sending.Wait()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			// A tick that was late is no reason to send less.
			for due := began.Add(time.Duration(n) * pause); !due.After(now); due = began.Add(time.Duration(n) * pause) {
				number, at := n, due
				sending.Go(func() { send(number, at) })
				n++
			}
		}
	}
}

// Waits are those of notifications sent in a time, by what the simulator wrote down; of several devices the first. Missing
// are those that it had not accepted.
func Waits(list []Sent, noted []servers.Noted, from, to time.Time) (found []Wait, missing []Sent) {
	accepted := make(map[string]time.Time, len(noted))
	for _, n := range noted {
		if at, is := accepted[n.ID]; !is || n.At.Before(at) {
			accepted[n.ID] = n.At
		}
	}
	for _, s := range list {
		if s.At.Before(from) || s.At.After(to) {
			continue
		}
		if at, is := accepted[s.ID]; is {
			found = append(found, Wait{s.At, at.Sub(s.At)})
		} else {
			missing = append(missing, s)
		}
	}
	return found, missing
}

// Quantile is, in ms, the least time that this part of the waits does not exceed; nil of none.
func Quantile(list []Wait, part float64) *float64 {
	if len(list) == 0 {
		return nil
	}
	took := make([]time.Duration, len(list))
	for i, w := range list {
		took[i] = w.Took
	}
	slices.Sort(took)
	ms := took[max(0, int(math.Ceil(part*float64(len(took))))-1)].Seconds() * 1000
	return &ms
}
