package push

import (
	"math/rand/v2"
	"time"
)

// Backoff is how long to rest between attempts: from First, doubling, to
// Longest. The second half of each pause is random, so that callers that failed
// together do not come back together. First and Longest are positive.
type Backoff struct{ First, Longest time.Duration }

// After returns the pause after the given number of failed attempts, at least 1:
// between half of min(First·2^(failed-1), Longest) and all of it.
func (b Backoff) After(failed int) time.Duration {
	pause := b.First
	for ; failed > 1 && pause < b.Longest; failed-- {
		pause *= 2
	}
	pause = min(pause, b.Longest)
	return pause - rand.N(pause/2+1)
}
