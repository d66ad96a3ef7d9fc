package dashboard

import (
	"time"

	"github.com/pushfleet/pushfleet/events"
)

const (
	// maxLimiters bounds the rules whose users are told apart, at 60 KB each.
	maxLimiters = 100
	// shortSpan is the minutes of the shorter span that users are estimated for, the present
	// one included.
	shortSpan = 5
)

// limiter is the users that a rule limited, by minute; a minute's place is its number
// modulo hour, nil = none.
type limiter struct {
	minutes [hour]*events.Sketch
	short   int64 // estimates of shortSpan and of the hour
	long    int64
	stale   bool // the estimates are older than the sketches
}

// limiters are the rules that limited anybody in the last hour.
type limiters struct {
	of     map[string]*limiter
	minute int64 // the present one, since 1970
}

func newLimiters() limiters { return limiters{of: make(map[string]*limiter)} }

// advance drops the minutes that are older than an hour.
func (l *limiters) advance(now time.Time) {
	to := now.Unix() / 60
	if to <= l.minute {
		return
	}
	l.drop(max(l.minute+1, to-hour+1), to)
	l.minute = to
}

// drop drops what is in the places of some minutes, at most an hour of them.
func (l *limiters) drop(first, last int64) {
	for rule, one := range l.of {
		for m := first; m <= last; m++ {
			one.minutes[m%hour] = nil
		}
		one.stale = true
		if one.minutes == [hour]*events.Sketch{} {
			delete(l.of, rule)
		}
	}
}

// tell takes what a worker told at a time, which is not after the present minute. A copy
// changes nothing.
func (l *limiters) tell(u *events.LimitedUsers, at time.Time) {
	m := at.Unix() / 60
	if m <= l.minute-hour || m > l.minute || u.Sketch == nil {
		return
	}
	rule := cut(u.Rule)
	one := l.of[rule]
	if one == nil {
		if len(l.of) >= maxLimiters {
			return
		}
		one = &limiter{}
		l.of[rule] = one
	}
	slot := &one.minutes[m%hour]
	if *slot == nil {
		*slot = new(events.Sketch)
	}
	(*slot).Merge(u.Sketch)
	one.stale = true
}

// users are about how many users a rule limited in shortSpan, and in the hour.
func (l *limiters) users(rule string) (short, long int64) {
	one := l.of[rule]
	if one == nil {
		return 0, 0
	}
	if one.stale {
		var all events.Sketch
		for back := range int64(hour) {
			if s := one.minutes[(l.minute-back+hour)%hour]; s != nil {
				all.Merge(s)
			}
			if back == shortSpan-1 {
				one.short = all.Estimate()
			}
		}
		one.long, one.stale = all.Estimate(), false
	}
	return one.short, one.long
}
