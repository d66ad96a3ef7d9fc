package rates

import (
	"errors"
	"time"
)

// Factors are how answers change a rate.
type Factors struct {
	OverQuota      float64       // what is left of the rate after a 429; above 0, below 1
	Failing        float64       // what is left of it when the provider fails (500, 502, 503); above 0, below 1
	FailingShare   float64       // it fails when at least this part of the answers of 10 s says so; above 0, at most 1
	FailingAnswers int           // fewer answers than this prove no failing; at least 1
	Floor          float64       // the least that steps lead to, as a part of the base; above 0, at most 1
	Growth         float64       // a step up; above 1
	GrowthAfter    time.Duration // the least from one change to a step up; positive
	GrowthAnswers  int           // and more than so many good answers; not negative
}

// DefaultFactors returns the defaults.
func DefaultFactors() Factors {
	return Factors{OverQuota: 0.8, Failing: 0.5, FailingShare: 0.05, FailingAnswers: 100, Floor: 0.1,
		Growth: 1.1, GrowthAfter: time.Minute, GrowthAnswers: 100}
}

func (f *Factors) check() error {
	switch {
	case !(f.OverQuota > 0 && f.OverQuota < 1), !(f.Failing > 0 && f.Failing < 1):
		return errors.New("steps down must leave more than nothing and less than all of a rate")
	case !(f.FailingShare > 0 && f.FailingShare <= 1), f.FailingAnswers < 1:
		return errors.New("the failing share must be above 0 and at most 1, and its answers at least 1")
	case !(f.Floor > 0 && f.Floor <= 1):
		return errors.New("the floor must be above 0 and at most 1")
	case !(f.Growth > 1), f.GrowthAfter <= 0, f.GrowthAnswers < 0:
		return errors.New("steps up must be above 1, their time positive and their answers not negative")
	}
	return nil
}

const (
	// least is where the limit of a rate without a base begins at the least, in
	// sends a second: three a second at night are no limit for the morning.
	least = 1000
	// slowest is the lowest rate, in sends a second.
	slowest = 1
	// settling is how long after a change its answers are not yet about it alone:
	// what the provider had counted before is still full.
	settling = 500 * time.Millisecond
	// round is the least time between two rounds of a quick recovery, and
	// roundAnswers the good answers that it takes: those of a gate's window.
	round        = time.Second
	roundAnswers = 20
	// quickly is how far a recovery goes by rounds: to this part of the rate at the
	// last 429.
	quickly = 0.9
	// allRefused: when not one answer in so many was good, a 429 says that the quota is
	// used up, and nothing about the rate.
	allRefused = 10
	// within is how much of what a window takes is used: sends are not exactly even.
	within = 0.995
	// overMark is how long a step over the mark of a window is waited for, in times of
	// GrowthAfter: each time that the quota turns out to be the same costs a route that is
	// stopped for seconds.
	overMark = 10
	// refusedAgain is what is left of a rate that had been lowered to what was proven, and is
	// too fast all the same, with nothing better known.
	refusedAgain = 0.97
	// disproved is a step up beyond that, when the quota has turned out to be more: what it
	// really is the next 429 says.
	disproved = 2
)

// State is the rate of a fleet: what all of its workers agree on.
type State struct {
	Epoch uint32  // grows by each change
	Rate  float64 // sends a second of all workers; 0 = no limit
	Mark  float64 // the rate at the last 429; 0 = none since it was all recovered
	Start float64 // without a base: where the limit began; 0 = there is none
}

// seen is what is known of the answers to sends of one epoch.
type seen struct {
	age          time.Duration // of the epoch
	good         int           // answers that show that the provider takes what is sent
	overQuota    int           // 429
	recentGood   int           // of the last 10 s at the most
	recentFailed int           // 500, 502 and 503, of the same time
	peak         float64       // the most of them a second that the fleet had in the last day
	taken        int           // what the provider has taken in the last window, of any epoch; -1 = unknown
	refused      time.Duration // since the first of these 429s
}

// Cause is why a rate changed; a metric label.
type Cause string

// The causes.
const (
	CauseQuota     Cause = "over_quota" // a 429
	CauseFailing   Cause = "failing"    // a share of 500, 502 and 503
	CauseRound     Cause = "round"      // a round of a quick recovery went well
	CauseGrowth    Cause = "growth"     // a time went well
	CauseLost      Cause = "state_lost" // Redis had lost it: the lowest that a worker knew
	CauseAnnounced Cause = "announced"  // what the provider says is left of its window
)

// next returns what follows from answers to sends of s; no cause = nothing. base is
// the configured rate, 0 = none; window is the time that the provider counts for its
// quota, 0 = unknown. It reads no clock and keeps nothing.
func (f *Factors) next(base float64, window time.Duration, s State, a seen) (State, Cause) {
	s, top := limited(base, s)
	healthy := a.overQuota == 0 && float64(a.recentFailed) < f.FailingShare*float64(a.recentGood+a.recentFailed)
	settled := a.age >= settling || s.Rate == 0 // only what recovered has no limit
	quick := top
	if s.Mark > 0 {
		quick = min(quickly*s.Mark, top)
	}
	switch {
	case settled && a.overQuota > 0:
		s, top = begun(s, top, a.peak)
		if window > 0 && float64(a.taken) >= f.Floor*top*window.Seconds() {
			return f.usedUp(window, s, top, a)
		}
		if s.Mark == 0 || a.good*allRefused >= a.overQuota {
			s.Mark = s.Rate
		}
		return f.down(s, top, f.OverQuota), CauseQuota
	case settled && f.failing(a):
		s, top = begun(s, top, a.peak)
		return f.down(s, top, f.Failing), CauseFailing
	case s.Rate == 0, base > 0 && s.Rate >= top, !healthy:
	case s.Rate < quick:
		if a.age >= round && a.good >= roundAnswers {
			return up(s, base, top, min(2*s.Rate, quick)), CauseRound
		}
	default:
		to, after := f.growth(window, s, top)
		if a.age >= after && a.good > f.GrowthAnswers {
			return up(s, base, top, to), CauseGrowth
		}
	}
	return s, ""
}

// usedUp is what follows from a 429 of a quota of so much in each window, when it is
// known what the provider has taken in the last one: the quota is not more than that,
// whenever its windows begin. It is judged when all answers to what was under way have
// come, and once.
func (f *Factors) usedUp(window time.Duration, s State, top float64, a seen) (State, Cause) {
	if a.refused < settling {
		return s, ""
	}
	bound := float64(a.taken) / window.Seconds()
	switch lowered := s.Mark > 0 && s.Rate <= s.Mark; {
	case lowered && bound < s.Rate:
		s.Mark = bound
	case lowered && a.age < window:
		return s, "" // what was sent before the change may have used it up
	case lowered:
		s.Mark = refusedAgain * s.Rate
	case s.Mark == 0 || s.Rate > s.Mark*f.Growth: // more than an earlier mark went well
		s.Mark = min(s.Rate, bound)
	default:
		s.Mark = min(s.Mark, bound)
	}
	return f.down(s, top, within*s.Mark/s.Rate), CauseQuota
}

// growth is the next step up of what has recovered quickly, and the least time to it.
// Under the mark of a window it ends just there; far over it the mark is wrong.
func (f *Factors) growth(window time.Duration, s State, top float64) (to float64, after time.Duration) {
	to, after = min(f.Growth*s.Rate, top), f.GrowthAfter
	switch edge := within * s.Mark; {
	case window == 0 || s.Mark == 0:
	case s.Rate < edge:
		to = min(to, edge)
	case s.Rate <= s.Mark:
		after *= overMark
	case s.Rate > f.Growth*s.Mark:
		to = min(disproved*s.Rate, top)
	}
	return to, after
}

// limited is a state as a worker with this base sees it, and what it recovers to.
// Others may have another base while a fleet is upgraded, or none.
func limited(base float64, s State) (State, float64) {
	switch {
	case base > 0 && s.Rate == 0:
		s.Rate = base
		return s, base
	case base > 0:
		return s, base
	case s.Start == 0:
		return s, s.Rate
	}
	return s, s.Start
}

// begun is a state with a limit: one without a base begins where the fleet has been.
func begun(s State, top, peak float64) (State, float64) {
	if s.Rate == 0 {
		s.Start = max(peak, least)
		s.Rate, top = s.Start, s.Start
	}
	return s, top
}

func (f *Factors) failing(a seen) bool {
	answers := a.recentGood + a.recentFailed
	return answers >= f.FailingAnswers && float64(a.recentFailed) >= f.FailingShare*float64(answers)
}

// down is a step down, to the floor at the most. At the floor it is a change all the
// same: what recovers begins to count anew.
func (f *Factors) down(s State, top, factor float64) State {
	s.Epoch++
	s.Rate = max(s.Rate*factor, min(s.Rate, f.Floor*top), slowest)
	return s
}

// up is a step up to rate. What has reached its top is recovered: a limit without a
// base is gone then.
func up(s State, base, top, rate float64) State {
	s.Epoch++
	s.Rate = rate
	if rate >= top {
		s.Mark = 0
		if base == 0 {
			s.Rate, s.Start = 0, 0
		}
	}
	return s
}
