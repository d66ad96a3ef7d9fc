package webhooks

import (
	"context"
	"sync"
	"time"
)

// failsInRow is how many calls must fail one after the other for an endpoint to rest that
// has not asked for it: one that refuses some events takes the others as fast as before.
const failsInRow = 3

// line decides when a sender's endpoint may be called. While calls succeed, all events
// go at once. An endpoint that fails rests, and then one event at a time goes to see,
// until one is taken. It is safe for concurrent use.
type line struct {
	mu       sync.Mutex
	version  string        // guarded by mu; of the endpoint that all this is about
	row      int           // guarded by mu; calls that have failed since the last success
	rests    int           // guarded by mu; rests since then
	until    time.Time     // guarded by mu; when the rest is over; zero = it does not rest
	looking  bool          // guarded by mu; one event is on its way to see
	round    uint64        // guarded by mu; grows with each rest and each end of one
	accepted uint64        // guarded by mu; events that were taken
	gone     bool          // guarded by mu; it has said that it wants no more
	moved    chan struct{} // guarded by mu; closed and made anew at every change
}

func newLine() *line { return &line{moved: make(chan struct{})} }

// leave is what an event got to call an endpoint.
type leave struct {
	version  string // of the endpoint
	round    uint64
	looks    bool
	accepted uint64 // by then
}

// changed wakes those who wait. The caller holds mu.
func (l *line) changed() {
	close(l.moved)
	l.moved = make(chan struct{})
}

// enter lets an event to the endpoint, not before its own time; gone = that wants none. With
// got nil the event is to ask again: when moved is closed, or after wait if that is more than 0.
func (l *line) enter(to *Endpoint, notBefore time.Time) (got *leave, gone bool, wait time.Duration, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version != to.version { // another endpoint: what was known is of the former one
		l.version, l.row, l.rests, l.until, l.looking, l.gone = to.version, 0, 0, time.Time{}, false, false
		l.round++
		l.changed()
	}
	now := time.Now()
	wait = max(l.until.Sub(now), notBefore.Sub(now))
	resting := !l.until.IsZero()
	switch {
	case l.gone:
		return nil, true, 0, nil
	case wait <= 0 && !(resting && l.looking):
		l.looking = resting
		return &leave{l.version, l.round, resting, l.accepted}, false, 0, nil
	}
	return nil, false, wait, l.moved
}

// taken ends a call that was answered well. By a former endpoint it says nothing of this one.
func (l *line) taken(got *leave) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got.version != l.version {
		return
	}
	l.accepted++
	l.row, l.rests, l.until, l.looking = 0, 0, time.Time{}, false
	l.round++
	l.changed()
}

// fails ends a call that was not, and returns how many events have been taken by now.
// asked: the endpoint asks for a rest, of the length wait if it is not 0. Calls that were
// on their way when it began to rest say nothing new.
func (l *line) fails(got *leave, asked bool, wait time.Duration) (accepted uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got.round != l.round {
		return l.accepted
	}
	if l.row++; l.row < failsInRow && !asked && !got.looks {
		return l.accepted
	}
	l.rests++
	l.round++
	l.until, l.looking = time.Now().Add(max(wait, backoff.After(l.rests))), false
	l.changed()
	return l.accepted
}

// unused gives back leave to call: nothing was asked.
func (l *line) unused(got *leave) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got.looks && got.round == l.round {
		l.looking = false
		l.changed()
	}
}

// ends notes that the endpoint wants no more.
func (l *line) ends(to *Endpoint) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == to.version {
		l.gone = true
		l.changed()
	}
}

// resting reports whether the endpoint is left alone now.
func (l *line) resting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone || !l.until.IsZero()
}

// await waits until moved is closed, or for d if it is more than 0. It returns an error if
// ctx or the partition ends first.
func await(ctx context.Context, leaving, moved <-chan struct{}, d time.Duration) error {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-moved:
	case <-ctx.Done():
		return ctx.Err()
	case <-leaving:
		return errLeaving
	}
	return nil
}
