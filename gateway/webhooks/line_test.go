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
		var got [20]leave
		for i := range got {
			var err error
			if got[i], _, err = l.enter(t.Context(), nil, to, time.Time{}); err != nil {
				t.Fatal(err)
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
