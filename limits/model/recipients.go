package model

import (
	"math/big"
	"time"
)

// Entry is one notification that was allowed, or waits until At.
type Entry struct {
	ID string
	At time.Time
}

// Limit is an algorithm that keeps a limit of recipients.
type Limit interface {
	// Load is what counts at a moment, given all entries up to it.
	Load(entries []Entry, at time.Time) *big.Rat
	// Most is the largest load.
	Most() int
}

// Fits reports whether one entry more makes the load too large at no moment. It
// may already be too large where the entry adds nothing to it.
func Fits(l Limit, entries []Entry, e Entry) bool {
	with := append([]Entry{e}, entries...)
	for _, x := range with {
		if x.At.Before(e.At) {
			continue
		}
		load := l.Load(upTo(with, x.At), x.At)
		if load.Cmp(l.Load(upTo(entries, x.At), x.At)) > 0 && load.Cmp(whole(l.Most())) > 0 {
			return false
		}
	}
	return true
}

func whole(n int) *big.Rat { return big.NewRat(int64(n), 1) }

func upTo(entries []Entry, at time.Time) (out []Entry) {
	for _, e := range entries {
		if !e.At.After(at) {
			out = append(out, e)
		}
	}
	return out
}

// SlidingLog allows Max in any stretch of Window.
type SlidingLog struct {
	Max    int
	Window time.Duration
}

// Most implements Limit.
func (l SlidingLog) Most() int { return l.Max }

// Load implements Limit.
func (l SlidingLog) Load(entries []Entry, at time.Time) *big.Rat {
	n := 0
	for _, e := range entries {
		if at.Sub(e.At) < l.Window {
			n++
		}
	}
	return whole(n)
}

// SlidingCounter allows Max in the current stretch of Window and the weighted
// one before.
type SlidingCounter struct {
	Max    int
	Window time.Duration
}

// Most implements Limit.
func (l SlidingCounter) Most() int { return l.Max }

// Load implements Limit.
func (l SlidingCounter) Load(entries []Entry, at time.Time) *big.Rat {
	stretch := func(t time.Time) int64 { return t.UnixMilli() / l.Window.Milliseconds() }
	now := stretch(at)
	gone := at.UnixMilli() - now*l.Window.Milliseconds()
	count := new(big.Rat)
	for _, e := range entries {
		switch stretch(e.At) {
		case now:
			count.Add(count, whole(1))
		case now - 1:
			count.Add(count, big.NewRat(l.Window.Milliseconds()-gone, l.Window.Milliseconds()))
		}
	}
	return count
}

// Windows says in which window a moment lies: [start, end).
type Windows func(at time.Time) (start, end time.Time)

// FixedWindow allows Max in each window.
type FixedWindow struct {
	Max int
	Of  Windows
}

// Most implements Limit.
func (l FixedWindow) Most() int { return l.Max }

// Load implements Limit.
func (l FixedWindow) Load(entries []Entry, at time.Time) *big.Rat {
	start, end := l.Of(at)
	n := 0
	for _, e := range entries {
		if !e.At.Before(start) && e.At.Before(end) {
			n++
		}
	}
	return whole(n)
}

// EventSet allows Max different ids in a window that slides, or in each of Of.
type EventSet struct {
	Max    int
	Window time.Duration
	Of     Windows
}

// Most implements Limit.
func (l EventSet) Most() int { return l.Max }

// Load implements Limit.
func (l EventSet) Load(entries []Entry, at time.Time) *big.Rat {
	from, to := at.Add(-l.Window+time.Nanosecond), at.Add(time.Nanosecond)
	if l.Of != nil {
		from, to = l.Of(at)
	}
	ids := map[string]bool{}
	for _, e := range entries {
		if !e.At.Before(from) && e.At.Before(to) {
			ids[e.ID] = true
		}
	}
	return whole(len(ids))
}
