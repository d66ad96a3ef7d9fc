package status

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// fill takes places of a weight until none is left, and returns how many it
// took.
func fill(t *testing.T, p *places, weight int) (n int) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		err := p.take(ctx, weight)
		cancel()
		if err != nil {
			return n
		}
		n++
	}
}

// Ids with a partition each are one query each. If queries were counted, most
// of the store would be idle.
func TestPlacesOfSmallQueries(t *testing.T) {
	for _, tt := range []struct{ ids, want int }{{readChunk, 4}, {readChunk / 2, 8}, {1, 32}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlaces(4, time.Second, func() error { return nil }, context.Background())
			if n := fill(t, p, weightOf(tt.ids, readChunk)); n != tt.want {
				t.Errorf("%d queries of %d ids at once, want %d", n, tt.ids, tt.want)
			}
		})
	}
}

// A caller waits for a place while the store answers. It stops waiting when the
// store does not answer, when its context ends, or when the store is closed.
func TestWaitingForAPlace(t *testing.T) {
	away := errors.New("no hosts available")
	stopped := errors.New("the worker stops")
	for _, tt := range []struct {
		why                  string
		trouble              error
		freed, ended, closed time.Duration
		took                 time.Duration
		want                 error
	}{
		{"the store answers, however slowly", nil, time.Minute, time.Hour, time.Hour, time.Minute, nil},
		{"the store is away", away, time.Minute, time.Hour, time.Hour, 5 * time.Second, away},
		{"nobody waits any more", nil, time.Minute, 12 * time.Second, time.Hour, 12 * time.Second, stopped},
		{"the store is closed", nil, time.Minute, time.Hour, 12 * time.Second, 12 * time.Second, ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			life, closeStore := context.WithCancel(context.Background())
			ctx, stop := context.WithCancelCause(t.Context())
			p := newPlaces(1, 5*time.Second, func() error { return tt.trouble }, life)
			fill(t, p, 1)
			begin := time.Now()
			timers := []*time.Timer{
				time.AfterFunc(tt.freed, func() { p.leave(1) }),
				time.AfterFunc(tt.ended, func() { stop(stopped) }),
				time.AfterFunc(tt.closed, closeStore),
			}
			err := p.take(ctx, 1)
			if took := time.Since(begin); !errors.Is(err, tt.want) || took != tt.took {
				t.Errorf("%s: %v after %v, want %v after %v", tt.why, err, took, tt.want, tt.took)
			}
			for _, timer := range timers {
				timer.Stop()
			}
			stop(nil)
			closeStore()
		})
	}
}

// hooked counts who waits for its end.
type hooked struct {
	context.Context
	waiting int
}

func (h *hooked) AfterFunc(func()) (stop func() bool) {
	h.waiting++
	return func() bool { h.waiting--; return true }
}

// Queries come and go for as long as the store lives, and leave nothing
// registered with its context.
func TestPlacesLeaveNothingBehind(t *testing.T) {
	life := &hooked{Context: context.Background()}
	p := newPlaces(1, time.Second, func() error { return nil }, life)
	for range 3 {
		if err := p.take(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		p.leave(1)
	}
	if life.waiting != 0 {
		t.Errorf("%d queries that are over wait for the store's end", life.waiting)
	}
}
