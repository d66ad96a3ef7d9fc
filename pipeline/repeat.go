package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
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
// that it does. It gives up only when ctx ends or leaving, if given, says so. A
// step that panics has failed: it is of ours or of a store's client, and no
// reason to end what all others do.
func (p *Pipeline) repeat(ctx context.Context, name Step, leaving func() bool, step func() error) (err error) {
	stall := p.stall(name)
	defer func() { stall.end(err) }()
	backoff := push.Backoff{First: firstPause, Longest: longPause}
	for failed := 1; ; failed++ {
		err := survived(name, step)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if leaving != nil && leaving() {
			return errLeaving
		}
		stall.tell(err)
		select {
		case <-time.After(backoff.After(failed)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// patiently does a step that makes its own attempts until ctx ends. One that
// takes longer than StatusTimeout is told like one that fails, at intervals;
// and its context ends when leaving, if given, says so.
func (p *Pipeline) patiently(ctx context.Context, name Step, leaving func() bool, step func(context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	stall := p.stall(name)
	var watching sync.WaitGroup
	over := make(chan struct{}) // closed below, when the step is over
	defer func() {
		close(over)
		watching.Wait()
		stall.end(err)
		cancel()
	}()
	watching.Go(func() {
		ticker := time.NewTicker(p.opt.StatusTimeout)
		defer ticker.Stop()
		for {
			select {
			case <-over:
				return
			case <-ticker.C:
			}
			if leaving != nil && leaving() {
				cancel()
				return
			}
			stall.tell(errSlow)
		}
	})
	return step(ctx)
}

// errSlow is told of a step that tries by itself: its store says why.
var errSlow = errors.New("not done within the time-out of one attempt")

// stall is a step that may be blocked. While it is, it is counted, declared and
// logged. It belongs to one goroutine at a time.
type stall struct {
	p      *Pipeline
	name   Step
	since  time.Time // zero before the first tell
	logged time.Time
	over   func(now time.Time) // ends the declaration; nil before the first tell
}

func (p *Pipeline) stall(name Step) *stall { return &stall{p: p, name: name} }

// tell says that the step failed, and why.
func (s *stall) tell(err error) {
	s.p.opt.Metrics.failedStep(s.p.opt.Lane, s.name)
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
		s.over = s.p.stalls.Declare(now, string(s.name), err.Error())
	}
	if now.Sub(s.logged) >= logEvery {
		s.logged = now
		s.p.opt.Log.Warn("step failed, retrying", "lane", s.p.opt.Lane, "step", s.name, "since", s.since, "error", err)
	}
}

// end says how the step ended, if anything was told of it.
func (s *stall) end(err error) {
	if s.over == nil {
		return
	}
	now := time.Now()
	s.over(now)
	if err == nil {
		s.p.opt.Log.Info("step recovered", "lane", s.p.opt.Lane, "step", s.name, "stalled", now.Sub(s.since).Round(time.Millisecond))
	}
}

// survived does step, and returns its panic as a *PanicError.
func survived(name Step, step func() error) (err error) {
	defer func() {
		if p := push.Recovered(string(name), recover()); p != nil {
			err = p
		}
	}()
	return step()
}
