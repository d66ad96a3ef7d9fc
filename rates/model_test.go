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

// What a 429 says where the provider counts by the minute.
func TestWhatAWindowThatIsUsedUpMeans(t *testing.T) {
	const long = time.Hour
	full := func(age time.Duration, taken int) seen {
		return seen{age: age, good: 1e6, overQuota: 5, taken: taken, refused: settling}
	}
	well := func(age time.Duration) seen { return seen{age: age, good: 1e6, recentGood: 9} }
	for _, tt := range []struct {
		why   string
		from  State
		seen  seen
		to    State
		cause Cause
	}{
		{"what it took is the quota", State{Epoch: 1, Rate: 1000}, full(long, 15_000), State{Epoch: 2, Rate: 248.75, Mark: 250}, CauseQuota},
		{"not before all answers have come", State{Epoch: 1, Rate: 1000}, seen{age: long, overQuota: 5, taken: 15_000, refused: settling - 1}, State{Epoch: 1, Rate: 1000}, ""},
		{"it is not known", State{Epoch: 1, Rate: 1000}, full(long, -1), State{Epoch: 2, Rate: 800, Mark: 1000}, CauseQuota},
		{"it is under the floor", State{Epoch: 1, Rate: 1000}, full(long, 5999), State{Epoch: 2, Rate: 800, Mark: 1000}, CauseQuota},
		{"it is as much as the rate", State{Epoch: 1, Rate: 1000}, full(long, 61_000), State{Epoch: 2, Rate: 995, Mark: 1000}, CauseQuota},
		{"the same window again", State{Epoch: 2, Rate: 248.75, Mark: 250}, full(time.Minute-1, 15_000), State{Epoch: 2, Rate: 248.75, Mark: 250}, ""},
		{"the same window, of which less is left to count", State{Epoch: 2, Rate: 248.75, Mark: 250}, full(time.Minute-1, 12_000), State{Epoch: 3, Rate: 199, Mark: 200}, CauseQuota},
		{"a later one", State{Epoch: 2, Rate: 200, Mark: 250}, full(time.Minute, 15_000), State{Epoch: 3, Rate: 193.03, Mark: 194}, CauseQuota},
		{"a step over the mark", State{Epoch: 3, Rate: 274, Mark: 250}, full(long, 16_000), State{Epoch: 4, Rate: 248.75, Mark: 250}, CauseQuota},
		{"far over it, it was wrong", State{Epoch: 4, Rate: 500, Mark: 250}, full(long, 24_000), State{Epoch: 5, Rate: 398, Mark: 400}, CauseQuota},
		{"up to the mark in a minute", State{Epoch: 2, Rate: 240, Mark: 250}, well(time.Minute), State{Epoch: 3, Rate: 248.75, Mark: 250}, CauseGrowth},
		{"over it not in nine", State{Epoch: 3, Rate: 248.75, Mark: 250}, well(10*time.Minute - 1), State{Epoch: 3, Rate: 248.75, Mark: 250}, ""},
		{"but in ten", State{Epoch: 3, Rate: 200, Mark: 200}, well(10 * time.Minute), State{Epoch: 4, Rate: 220.00000000000003, Mark: 200}, CauseGrowth},
		{"on from there in one", State{Epoch: 4, Rate: 219, Mark: 200}, well(time.Minute), State{Epoch: 5, Rate: 240.90000000000003, Mark: 200}, CauseGrowth},
		{"and by twice when it was wrong", State{Epoch: 5, Rate: 240, Mark: 200}, well(time.Minute), State{Epoch: 6, Rate: 480, Mark: 200}, CauseGrowth},
		{"up to the base", State{Epoch: 6, Rate: 600, Mark: 200}, well(time.Minute), State{Epoch: 7, Rate: 1000}, CauseGrowth},
		{"a failing provider", State{Epoch: 2, Rate: 248, Mark: 250}, seen{age: long, recentFailed: 100, taken: 10}, State{Epoch: 3, Rate: 124, Mark: 250}, CauseFailing},
	} {
		f := DefaultFactors()
		to, cause := f.next(1000, time.Minute, tt.from, tt.seen)
		if cause == "" {
			to = tt.from
		}
		if to.Epoch != tt.to.Epoch || math.Abs(to.Rate-tt.to.Rate) > 1e-9 || to.Mark != tt.to.Mark || cause != tt.cause {
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
			a.taken, a.refused = rapid.IntRange(-1, 1_000_000).Draw(t, "taken"), time.Second
			next, cause := f.next(base, rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "window"), s, a)
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
