package webhooks

import (
	"testing"
	"testing/synctest"
	"time"
)

// Calls that were on their way when an endpoint began to rest make its rest no longer.
func TestLateFailuresSayNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, to := newLine(), &Endpoint{version: "1"}
		var got [20]*leave
		for i := range got {
			if got[i], _, _, _ = l.enter(to, time.Time{}); got[i] == nil {
				t.Fatal("an endpoint that does not rest is not called")
			}
		}
		for _, g := range got {
			l.fails(g, false, 0)
		}
		if rest := time.Until(l.until); rest > backoff.First || l.rests != 1 {
			t.Errorf("it rests for %v, %d times", rest, l.rests)
		}
		l.fails(got[0], true, time.Hour)
		if time.Until(l.until) > backoff.First {
			t.Error("what was asked before the rest makes it longer")
		}
	})
}

// What a former endpoint answers ends no rest of the one that is.
func TestAFormerEndpointSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, former, to := newLine(), &Endpoint{version: "1"}, &Endpoint{version: "2"}
		slow, _, _, _ := l.enter(former, time.Time{})
		got, _, _, _ := l.enter(to, time.Time{})
		l.fails(got, true, time.Hour)
		l.taken(slow)
		if !l.resting() {
			t.Error("it does not rest any more")
		}
	})
}

// Failures of calls that were on their way when another was taken say nothing of what is:
// the endpoint does not rest for them.
func TestFailuresFromBeforeASuccessAreNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, to := newLine(), &Endpoint{version: "1"}
		var slow [failsInRow]*leave
		for i := range slow {
			slow[i], _, _, _ = l.enter(to, time.Time{})
		}
		got, _, _, _ := l.enter(to, time.Time{})
		l.taken(got)
		for _, g := range slow {
			l.fails(g, false, 0)
		}
		if l.resting() {
			t.Error("it rests for failures that began before a success")
		}
	})
}
