package pipeline

import (
	"testing"
	"testing/synctest"
	"time"
)

// An Uptime keeps what time.Now's monotonic reading says, also where the wall clock says
// something else: synctest's clock is of the year 2000.
func TestUptimes(t *testing.T) {
	check := func(t *testing.T) {
		now := time.Now()
		for _, d := range []time.Duration{-1 << 55, -time.Hour, -1, 0, 1, time.Minute, 1 << 55} {
			at := now.Add(d)
			got := UptimeAt(at)
			if got.IsZero() || now.Sub(got.Time()) != -d || !got.Time().Equal(at) {
				t.Errorf("%v from now came back as %v from now", d, got.Time().Sub(now))
			}
		}
		if got := UptimeAt(time.Time{}); !got.IsZero() || !got.Time().IsZero() {
			t.Errorf("no time came back as %v", got.Time())
		}
		if got := UptimeAt(began); got.IsZero() || got.Time().Sub(began) != 1 {
			t.Errorf("the very beginning came back as %v after it", got.Time().Sub(began))
		}
	}
	check(t)
	synctest.Test(t, check)
}

// What is not of this process has no monotonic reading, and goes by the wall clock.
func TestUptimeOfTheWallClock(t *testing.T) {
	at := time.Now().Add(time.Minute).Round(0)
	if got := UptimeAt(at); got.Time().Round(0) != at {
		t.Errorf("%v came back as %v", at, got.Time())
	}
}
