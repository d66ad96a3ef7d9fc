package rates

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestWhatAnswersMean(t *testing.T) {
	const long = time.Hour
	for _, tt := range []struct {
		why   string
		base  float64
		from  State
		seen  seen
		to    State
		cause Cause
	}{
		{"nothing", 1000, State{Epoch: 1, Rate: 1000}, seen{age: long}, State{Epoch: 1, Rate: 1000}, ""},
		{"one 429", 1000, State{Epoch: 1, Rate: 1000}, seen{age: long, good: 1e6, overQuota: 1}, State{Epoch: 2, Rate: 800, Mark: 1000}, CauseQuota},
		{"429s are one step", 1000, State{Epoch: 1, Rate: 1000}, seen{age: long, overQuota: 1e6}, State{Epoch: 2, Rate: 800, Mark: 1000}, CauseQuota},
		{"a 429 right after a step", 1000, State{Epoch: 2, Rate: 800, Mark: 1000}, seen{age: settling - 1, overQuota: 9}, State{Epoch: 2, Rate: 800, Mark: 1000}, ""},
		{"never under the floor", 1000, State{Epoch: 9, Rate: 110, Mark: 900}, seen{age: long, good: 9, overQuota: 9}, State{Epoch: 10, Rate: 100, Mark: 110}, CauseQuota},
		{"at the floor", 1000, State{Epoch: 9, Rate: 100, Mark: 900}, seen{age: long, good: 9, overQuota: 9}, State{Epoch: 10, Rate: 100, Mark: 100}, CauseQuota},
		{"a quota that is used up says nothing of the rate", 1000, State{Epoch: 2, Rate: 800, Mark: 1000}, seen{age: time.Second, good: 9, overQuota: 91}, State{Epoch: 3, Rate: 640, Mark: 1000}, CauseQuota},
		{"5 % of 100 failed", 1000, State{Epoch: 1, Rate: 1000}, seen{age: long, recentGood: 95, recentFailed: 5}, State{Epoch: 2, Rate: 500}, CauseFailing},
		{"of 99 it is too few", 1000, State{Epoch: 1, Rate: 1000}, seen{age: long, recentGood: 0, recentFailed: 99}, State{Epoch: 1, Rate: 1000}, ""},
		{"less than 5 %", 1000, State{Epoch: 1, Rate: 1000}, seen{age: long, recentGood: 96, recentFailed: 5}, State{Epoch: 1, Rate: 1000}, ""},
		{"0.1 % of many", 1000, State{Epoch: 1, Rate: 1000}, seen{age: long, recentGood: 999_000, recentFailed: 1000}, State{Epoch: 1, Rate: 1000}, ""},
		{"a round", 1000, State{Epoch: 5, Rate: 100}, seen{age: round, good: roundAnswers, recentGood: roundAnswers}, State{Epoch: 6, Rate: 200}, CauseRound},
		{"a round too early", 1000, State{Epoch: 5, Rate: 100}, seen{age: round - 1, good: 99, recentGood: 99}, State{Epoch: 5, Rate: 100}, ""},
		{"a round of too few", 1000, State{Epoch: 5, Rate: 100}, seen{age: long, good: roundAnswers - 1, recentGood: roundAnswers - 1}, State{Epoch: 5, Rate: 100}, ""},
		{"a round of which a share failed", 1000, State{Epoch: 5, Rate: 100}, seen{age: round, good: 90, recentGood: 90, recentFailed: 9}, State{Epoch: 5, Rate: 100}, ""},
		{"rounds end at 90 % of the mark", 1000, State{Epoch: 5, Rate: 300, Mark: 400}, seen{age: round, good: 90, recentGood: 90}, State{Epoch: 6, Rate: 360, Mark: 400}, CauseRound},
		{"from there on it takes a minute", 1000, State{Epoch: 6, Rate: 360, Mark: 400}, seen{age: time.Minute - 1, good: 900, recentGood: 90}, State{Epoch: 6, Rate: 360, Mark: 400}, ""},
		{"after a minute", 1000, State{Epoch: 6, Rate: 400, Mark: 400}, seen{age: time.Minute, good: 101, recentGood: 90}, State{Epoch: 7, Rate: 440.00000000000006, Mark: 400}, CauseGrowth},
		{"after a minute with too few", 1000, State{Epoch: 6, Rate: 400, Mark: 400}, seen{age: time.Minute, good: 100, recentGood: 90}, State{Epoch: 6, Rate: 400, Mark: 400}, ""},
		{"up to the base", 1000, State{Epoch: 6, Rate: 950, Mark: 960}, seen{age: time.Minute, good: 101, recentGood: 90}, State{Epoch: 7, Rate: 1000}, CauseGrowth},
		{"no base: from the peak", 0, State{Epoch: 1}, seen{overQuota: 1, peak: 5000}, State{Epoch: 2, Rate: 4000, Mark: 5000, Start: 5000}, CauseQuota},
		{"no base: three a second at night", 0, State{Epoch: 1}, seen{overQuota: 1, peak: 3}, State{Epoch: 2, Rate: 800, Mark: 1000, Start: 1000}, CauseQuota},
		{"no base: failing", 0, State{Epoch: 1}, seen{recentFailed: 100, peak: 3}, State{Epoch: 2, Rate: 500, Start: 1000}, CauseFailing},
		{"no base: it vanishes", 0, State{Epoch: 7, Rate: 990, Mark: 1000, Start: 1000}, seen{age: time.Minute, good: 101, recentGood: 9}, State{Epoch: 8}, CauseGrowth},
		{"others have a base", 0, State{Epoch: 7, Rate: 500}, seen{age: time.Minute, good: 101, recentGood: 9}, State{Epoch: 8}, CauseGrowth},
		{"others have none", 1000, State{Epoch: 7}, seen{age: time.Minute, overQuota: 1}, State{Epoch: 8, Rate: 800, Mark: 1000}, CauseQuota},
	} {
		f := DefaultFactors()
		to, cause := f.next(tt.base, 0, tt.from, tt.seen)
		if cause == "" {
			to = tt.from
		}
		if to != tt.to || cause != tt.cause {
			t.Errorf("%s: %+v, %q; want %+v, %q", tt.why, to, cause, tt.to, tt.cause)
		}
	}
}

// From 10 % the way back takes seconds, not 24 minutes.
func TestFromTheFloorItTakesSeconds(t *testing.T) {
	f := DefaultFactors()
	s, took := State{Rate: 1000}, time.Duration(0)
	for s.Rate < 10_000 {
		next, cause := f.next(10_000, 0, s, seen{age: round, good: 100, recentGood: 100})
		if cause == "" {
			t.Fatalf("no way on from %+v", s)
		}
		s, took = next, took+round
	}
	if took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Whatever the answers are, a rate stays between floor and top, and each change is a
// new epoch.
func TestARateStaysWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := DefaultFactors()
		base := rapid.SampledFrom([]float64{0, 1, 5, 500, 10_000}).Draw(t, "base")
		s := State{Rate: base}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			good, failed := rapid.IntRange(0, 2000).Draw(t, "good"), rapid.IntRange(0, 200).Draw(t, "failed")
			a := seen{age: time.Duration(rapid.IntRange(0, 90).Draw(t, "age")) * time.Second, good: good, recentGood: good, recentFailed: failed,
				overQuota: rapid.SampledFrom([]int{0, 0, 0, 1, 1000}).Draw(t, "over"), peak: rapid.Float64Range(0, 5000).Draw(t, "peak")}
			next, cause := f.next(base, 0, s, a)
			if cause == "" {
				continue
			}
			top := base
			if base == 0 {
				top = math.Max(next.Start, s.Start)
			}
			if next.Epoch != s.Epoch+1 || next.Rate > top || next.Rate != 0 && next.Rate < max(f.Floor*top, slowest)*0.999 || base > 0 && next.Rate == 0 {
				t.Fatalf("%+v after %+v of %+v", next, a, s)
			}
			if (cause == CauseQuota || cause == CauseFailing) && s.Rate > 0 && next.Rate > s.Rate || (cause == CauseRound || cause == CauseGrowth) && next.Rate != 0 && next.Rate <= s.Rate {
				t.Fatalf("%s from %+v to %+v", cause, s, next)
			}
			s = next
		}
	})
}
