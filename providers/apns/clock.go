package apns

import (
	"net/http"
	"time"
)

// theirs is our best estimate of Apple's time at our now.
func (t *TokenSource) theirs(now time.Time) time.Time {
	return now.Add(time.Duration(t.skew.Load()))
}

// Correct is called when Apple has refused a token for its time, with the Date
// header of that answer. When it shows a clock more than five minutes from the
// one in use, tokens are issued by Apple's clock from then on. That is believed
// once in 20 minutes, so that servers which disagree cannot make us mint one
// token after another. A Date that is missing or malformed changes nothing.
//
// Accepted tokens are no reason to look: a server whose clock is wrong but who
// takes our token must not talk us out of it.
func (t *TokenSource) Correct(date []byte, now time.Time) {
	at, err := http.ParseTime(string(date))
	if err != nil {
		return
	}
	// The wall clock counts here. now may carry a monotonic reading, at does
	// not, and so Sub compares wall clocks.
	measured := at.Sub(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	if off := measured - time.Duration(t.skew.Load()); off.Abs() <= drift || t.settling(now) {
		return
	}
	if measured.Abs() <= drift {
		measured = 0 // our clock is good again: all workers have the same one
	}
	t.skew.Store(int64(measured))
	t.corrected, t.inUse.Load().previous = now, nil
}

// Settling reports whether the clock was corrected in the last 20 minutes.
// Connections from before then are bound to a token that Apple no longer
// takes, and another one on them is one too many.
func (t *TokenSource) Settling(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settling(now)
}

// settling is Settling with mu held. It goes by the monotonic clock, which no
// correction of the wall clock moves.
func (t *TokenSource) settling(now time.Time) bool {
	return !t.corrected.IsZero() && now.Sub(t.corrected) < calm
}
