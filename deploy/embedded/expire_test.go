package embedded

import (
	"testing"
	"testing/synctest"
	"time"
)

// Keys are as old as the clock says, however long it takes to walk over all of them,
// and commands are answered for most of the time.
func TestTheClockLeavesTimeForCommands(t *testing.T) {
	for _, test := range []struct {
		name  string
		walk  time.Duration
		walks int // in a minute, at least
	}{
		{"few keys", time.Millisecond, 115},
		{"many keys: a walk takes longer than a tick", 700 * time.Millisecond, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, stop := time.Now(), make(chan struct{})
				var aged, walked time.Duration
				walks, ended := 0, make(chan struct{})
				go func() {
					defer close(ended)
					expire(stop, func(d time.Duration) {
						aged += d
						if lived := time.Since(began); aged != lived {
							t.Errorf("keys are %v older after %v", aged, lived)
						}
						time.Sleep(test.walk)
						walks, walked = walks+1, walked+test.walk
					})
				}()
				time.Sleep(time.Minute)
				close(stop)
				<-ended
				if share := walked.Seconds() / 60; walks < test.walks || walks > 120 || share > 0.06 {
					t.Errorf("%d walks in a minute, %.0f %% of it; want %d to 120, and no more than 6 %%", walks, 100*share, test.walks)
				}
			})
		})
	}
}
