package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// errLeaving says that a step was not repeated because its partition leaves.
var errLeaving = errors.New("the partition is leaving")

// The pauses of repeat: short enough that a store which blinks costs little,
// long enough that one which is down is not hammered by every batch.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
	// logEvery is how often a step that keeps failing says so again.
	logEvery = 10 * time.Second
)

// repeat does step until it works, with growing pauses, and says at intervals
// that it does. It gives up only when ctx ends or leaving, if given, says so.
func (p *Pipeline) repeat(ctx context.Context, name string, leaving func() bool, step func() error) error {
	var logged, since time.Time
	over := func(time.Time) {}
	defer func() { over(time.Now()) }()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := step()
		if err == nil {
			if !since.IsZero() {
				p.Log.Info("goes on", "lane", p.Lane, "step", name, "stalled", time.Since(since).Round(time.Millisecond))
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if leaving != nil && leaving() {
			return errLeaving
		}
		p.Metrics.failedStep(p.Lane, name)
		now := time.Now()
		if since.IsZero() {
			since = now
			over = p.stalls.Declare(now, name, err.Error())
		}
		if now.Sub(logged) >= logEvery {
			logged = now
			p.Log.Warn("stalls and tries again", "lane", p.Lane, "step", name, "since", since, "error", err)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
