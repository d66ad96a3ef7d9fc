package dashboard

import (
	"context"
	"net/http"
)

// waiting is how many requests wait in a line for the one that is under way.
const waiting = 8

// line lets one request after the other through, and few wait.
type line struct {
	places chan struct{} // of those who wait or are through
	turn   chan struct{} // one: of who is through
}

func newLine() line { return line{make(chan struct{}, waiting), make(chan struct{}, 1)} }

// enter waits for its turn until ctx ends. leave must be called at the end of it; nil = the
// request was refused.
func (l line) enter(ctx context.Context, w http.ResponseWriter) (leave func()) {
	select {
	case l.places <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "2")
		refuse(w, http.StatusServiceUnavailable, "too many wait; try again")
		return nil
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; <-l.places }
	case <-ctx.Done():
		<-l.places
		refuse(w, http.StatusServiceUnavailable, "others took too long; try again")
		return nil
	}
}
