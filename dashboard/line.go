package dashboard

import (
	"context"
	"net/http"
	"time"
)

// waiting is how many requests wait in a line for the one that is under way.
const waiting = 8

// line lets one request after the other through, and few wait.
type line struct {
	places chan struct{} // of those who wait or are through
	turn   chan struct{} // one: of who is through
}

func newLine() line { return line{make(chan struct{}, waiting), make(chan struct{}, 1)} }

// enter waits for a request's turn, and bounds the time of both, waiting and work. The
// context is for the work; leave must be called at the end of it. nil = the request was
// refused.
func (l line) enter(w http.ResponseWriter, r *http.Request, within time.Duration) (ctx context.Context, leave func()) {
	select {
	case l.places <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, "too many wait; try again")
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	select {
	case l.turn <- struct{}{}:
		return ctx, func() { cancel(); <-l.turn; <-l.places }
	case <-ctx.Done():
		cancel()
		<-l.places
		refuse(w, http.StatusServiceUnavailable, "others took too long; try again")
		return nil, nil
	}
}
