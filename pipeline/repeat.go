package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Step is something that can fail. It is a label of push_step_failures_total and
// push_panics_total, the name of a stall, and a word in logs and alerts. Each stage is
// a step under its own name; these are the pipeline's own, and those of what it calls.
type Step string

// The steps that may fail, in the order of the way.
const (
	StepConfirm  Step = "confirm"   // reading the status rows of what came again
	StepIntents  Step = "intents"   // at_most_once: the row before the send
	StepRecheck  Step = "recheck"   // reading again what a long wait has made old
	StepStatus   Step = "status"    // writing the rows of what has ended
	StepHandOver Step = "hand-over" // producing what does not end here
	StepTell     Step = "tell"      // producing what senders are told of ends
	StepFilter   Step = "filter"    // adding finished ids to the dedupe filter
	StepLatest   Step = "latest"    // noting the newest of a collapse key
	StepCommit   Step = "commit"    // committing offsets
)

// steps are all of them.
var steps = [...]Step{StepConfirm, StepIntents, StepRecheck, StepStatus, StepHandOver, StepTell, StepFilter, StepLatest, StepCommit}

// More steps, which end in a result or a verdict whatever happens. If one panics, it is
// counted under this name in push_panics_total; push_step_failures_total has none of them.
const (
	StepDecode Step = "decode" // of a source: a record's value
	StepEncode Step = "encode" // of a provider: a message to its request
	StepSend   Step = "send"   // of a provider that is one function
	StepRead   Step = "read"   // of a provider: its answer
	StepSettle Step = "settle" // deciding what an answer means
)

// panicking are all of these.
var panicking = [...]Step{StepDecode, StepEncode, StepSend, StepRead, StepSettle}

// errLeaving says that a step was not repeated because its partition is leaving.
var errLeaving = errors.New("the partition is leaving")

// The pauses of repeat: short enough that a short outage costs little, long enough
// that not every batch hammers a store that is down.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
	// logEvery is how often a step that keeps failing is logged again.
	logEvery = 10 * time.Second
)

// repeat tries step until it succeeds, with growing pauses, and logs at intervals
// that it fails. It gives up only when ctx ends or leaving, if given, reports true. A
// step that panics has failed: a bug of ours or of a store's client is no reason to
// stop all other work.
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
		if pause(ctx, backoff.After(failed)); ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// patiently runs a step that makes its own attempts until ctx ends. While it takes
// longer than StatusTimeout, it is reported like a step that fails, at intervals. Its
// context ends when leaving, if given, reports true.
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

// errSlow is reported for a step that makes its own attempts: its store logs why.
var errSlow = errors.New("not done within the time-out of one attempt")

// stall is a step that may be blocked. While it is blocked, it is counted, declared
// and logged. It belongs to one goroutine at a time.
type stall struct {
	p      *Pipeline
	name   Step
	since  time.Time // zero before the first tell
	logged time.Time
	over   func(now time.Time) // ends the declaration; nil before the first tell
}

func (p *Pipeline) stall(name Step) *stall { return &stall{p: p, name: name} }

// tell reports that the step failed, and why.
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

// end reports how the step ended, if tell was called.
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

// survived runs step, and returns its panic as a *PanicError.
func survived(name Step, step func() error) (err error) {
	defer func() {
		if p := push.Recovered(string(name), recover()); p != nil {
			err = p
		}
	}()
	return step()
}

// poisoned counts and logs what was caught.
func (p *Pipeline) poisoned(f Poisoned) {
	p.opt.Metrics.panics.WithLabelValues(p.opt.Lane, f.First.Stage).Add(float64(f.Panics))
	places := make([]string, 0, fewPoisoned)
	for _, it := range f.Dead[:min(len(f.Dead), fewPoisoned)] {
		places = append(places, fmt.Sprintf("%s/%d@%d", it.Partition.Topic, it.Partition.ID, it.Offset))
	}
	p.opt.Log.Error("stage panicked", "lane", p.opt.Lane, "stage", f.First.Stage, "what", f.First.What, "panics", f.Panics,
		"dead", len(f.Dead), "places", places, "stack", string(f.First.Stack))
}
