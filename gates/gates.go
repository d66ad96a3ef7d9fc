// Package gates decides what may be sent to a route now. A Gate stops a route
// when its provider asks for a pause, refuses our credentials or fails, and
// opens it again by probes. Budgets keep retries from amplifying an outage.
// What a provider asked of one worker is shared with the others (Share).
//
// Stalls are the reasons that are declared while something must wait.
//
// A gate knows no delivery: it hands out Tickets and takes back Answers.
// What a provider takes a second is not decided here: a Rate says it, and the gate
// asks it last.
//
// Nothing here sends, and except in Share and Recall time is passed in.
package gates

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Options are the numbers of a Gate.
type Options struct {
	// A route closes when more than Share of its answers within Window were
	// bad, and there were at least Answers of them. Share is from 0 to 1.
	Window  time.Duration
	Answers int
	Share   float64
	// Fewer than Answers are judged by their order: Failures bad ones in a row over at
	// least two connections close it too. From 0, which is never, to 1000.
	Failures int

	// The first pause after bad answers, after refused credentials, and the
	// longest that doubling leads to. What a provider asks for may be longer.
	FirstPause, HaltPause, LongestPause time.Duration

	// After a pause come rounds of probes, the first of FirstProbes (fewer if
	// FullProbes is less), each twice as many as the one before; after a round of
	// FullProbes the route is open. A probe without an answer within ProbeTimeout
	// counts as bad; it must exceed the send deadline.
	FirstProbes, FullProbes int
	ProbeTimeout            time.Duration

	// Together says that the workers of a fleet judge routes by what all of them see, and
	// probe them by turns, where the store of Share is a FleetStore.
	Together bool

	// A route that was paused for more than HoldAfter of the last HoldSpan holds
	// (Gate.Hold). ProbeWait is how long deliveries wait for a probe in flight
	// before they are held.
	HoldAfter, HoldSpan, ProbeWait time.Duration

	// Quarantine is how long an origin is stopped whose tokens are bad; 0 = its route is
	// halted.
	Quarantine time.Duration
	// QuarantineCampaigns is how many campaigns of a sender are stopped at a time when it is stopped itself;
	// 0 = each of them alone. At most 100.
	QuarantineCampaigns int
	// Quarantined, unless nil, is told of each quarantine that answers began here. It is
	// called without a lock, and must not block.
	Quarantined func(Quarantined)

	// Retries is the retry budget, DeadLetters the DLQ limiter.
	Retries, DeadLetters BudgetOptions

	// Rates are how fast routes may be sent to, besides; a route without one as fast
	// as it takes what is sent.
	Rates map[push.Route]Rate

	// Jitter returns a random duration in [0, d), 0 for 0: it lengthens pauses
	// by up to a tenth, so that the workers of a fleet do not come back at once.
	Jitter func(d time.Duration) time.Duration
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{
		Window: 10 * time.Second, Answers: 20, Share: 0.5, Failures: 5,
		FirstPause: time.Second, HaltPause: 30 * time.Second, LongestPause: time.Minute,
		// 7 rounds with 50 ms answers: 0.35 s from the first probe to full speed.
		FirstProbes: 3, FullProbes: 128, ProbeTimeout: 15 * time.Second,
		Quarantine: time.Hour, QuarantineCampaigns: 20,
		HoldAfter: 5 * time.Second, HoldSpan: time.Minute, ProbeWait: 2 * time.Second,
		Retries: defaultRetryBudget(), DeadLetters: defaultDeadLetterBudget(),
		Jitter: func(d time.Duration) time.Duration {
			if d <= 0 {
				return 0
			}
			return rand.N(d)
		},
	}
}

func (o *Options) check() error {
	switch {
	case o.Failures < 0, o.Failures > mostFailures:
		return errors.New("failures in a row must be from 0 to 1000")
	case o.Window < windowSlices, o.Answers < 1, o.Share <= 0, o.Share >= 1:
		return errors.New("window and answers must be positive, and the share between 0 and 1")
	case o.FirstPause <= 0, o.HaltPause <= 0, o.LongestPause < o.FirstPause, o.LongestPause < o.HaltPause:
		return errors.New("pauses must be positive, and the longest not shorter than the first ones")
	case o.FirstProbes < 1, o.FullProbes < 1, o.ProbeTimeout <= 0, o.HoldAfter <= 0, o.HoldSpan < o.HoldAfter, o.ProbeWait < 0:
		return errors.New("probes, their timeout and the hold times must be positive, and the hold span not shorter than the time until holding")
	case o.Quarantine < 0, o.Quarantine > LongestQuarantine:
		return errors.New("a quarantine must be from nothing to a week")
	case o.QuarantineCampaigns < 0, o.QuarantineCampaigns > mostQuarantined:
		return errors.New("the campaigns that stop their sender must be from none to 100")
	case o.Jitter == nil:
		return errors.New("jitter is missing")
	}
	if err := o.Retries.check(); err != nil {
		return fmt.Errorf("retry budget: %w", err)
	}
	if err := o.DeadLetters.check(); err != nil {
		return fmt.Errorf("DLQ limiter: %w", err)
	}
	return nil
}

const (
	// mostFailures bounds what a gate remembers of a row of bad answers.
	mostFailures = 1000
	// probePoll is when to ask again while probes are in flight: their answers,
	// not the time, let the next ones through.
	probePoll = 10 * time.Millisecond
	// longestSpread bounds what jitter adds to a pause.
	longestSpread = 5 * time.Second
)

// Gates are the gates of all routes of a worker. All methods may be called at once.
type Gates struct {
	gates   map[push.Route]*Gate // never changed
	options Options
	log     *slog.Logger
	news    chan struct{} // capacity 1, never closed: a gate has something to tell
}

// New makes the gates, all open. now is the time at which their budgets
// are full. It reports options that cannot work.
func New(routes []push.Route, o Options, m *Metrics, log *slog.Logger, now time.Time) (*Gates, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("gates: %w", err)
	}
	gs := &Gates{gates: make(map[push.Route]*Gate, len(routes)), options: o, log: log, news: make(chan struct{}, 1)}
	for _, r := range routes {
		gs.gates[r] = newGate(r, o, m.of(r), log, now, gs.news)
	}
	return gs, nil
}

// Of returns the route's gate, or nil for a route that New was not given.
func (gs *Gates) Of(r push.Route) *Gate { return gs.gates[r] }
