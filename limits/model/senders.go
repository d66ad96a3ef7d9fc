package model

import "time"

// TokenBucket gets a token every Every and holds Burst of them. Who finds none
// takes one that is still to come, as long as the wait is at most Wait.
type TokenBucket struct {
	Burst int
	Every time.Duration
	Wait  time.Duration

	used   bool
	last   time.Time
	credit time.Duration // tokens, each worth Every; below 0 = owed
}

// Take returns how long the caller has to wait for its token; false when it
// takes none.
func (b *TokenBucket) Take(now time.Time) (wait time.Duration, ok bool) {
	full := time.Duration(b.Burst) * b.Every
	if !b.used {
		b.used, b.last, b.credit = true, now, full
	}
	if now.After(b.last) {
		b.credit = min(full, b.credit+now.Sub(b.last))
		b.last = now
	}
	// A worker whose clock is behind waits for the same moment.
	left := b.credit - b.Every
	wait = max(0, b.last.Sub(now)-left)
	if wait > b.Wait {
		return wait, false
	}
	b.credit = left
	return wait, true
}

// LeakyBucket lets one through every Every. The others stand in line, as long as
// the wait is at most Wait.
type LeakyBucket struct {
	Every time.Duration
	Wait  time.Duration

	used bool
	last time.Time // when the last of the line goes through
}

// Take returns how long the caller stands in line; false when it does not.
func (b *LeakyBucket) Take(now time.Time) (wait time.Duration, ok bool) {
	turn := now
	if next := b.last.Add(b.Every); b.used && next.After(now) {
		turn = next
	}
	if wait = turn.Sub(now); wait > b.Wait {
		return wait, false
	}
	b.used, b.last = true, turn
	return wait, true
}
