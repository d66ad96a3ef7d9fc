package dashboard

import "time"

// clockSlack is by how much a present may lie before one that was heard of, because two told
// of it at the same time.
const clockSlack = time.Minute

// present moves the clock to now, also back. The caller holds the lock.
func (f *Feed) present(now time.Time) {
	// By the time of day: in one process it says nothing of a clock that is set.
	if by := f.now.Round(0).Sub(now.Round(0)); by > clockSlack {
		f.setBack(now)
	}
	f.advance(now)
}

// setBack goes on at a time before the clock's, which was ahead: all that is ahead of it now
// would be in the way of what comes.
func (f *Feed) setBack(now time.Time) {
	f.now, f.wasAhead = now, now
	f.totals.setBack(now)
	f.buckets.setBack(now)
	f.limiters.setBack(now)
	for _, t := range f.history.tracks {
		t.seconds.setBack(now.Unix())
		t.minutes.setBack(now.Unix() / 60)
	}
	f.unread.setBack(now.Unix() / 60)
	f.sources.setBack(now)
}

// setBack drops what is counted after the unit to.
func (r *ring) setBack(to int64) {
	size := int64(len(r.slots))
	for u := max(to+1, r.newest-size+1); u <= r.newest; u++ {
		r.slots[u%size] = 0
	}
	r.newest = min(r.newest, to)
}

func (t *totals) setBack(now time.Time) {
	to := now.Unix() / 60
	t.drop(to+1, min(t.minute, to+hour))
	t.minute = to
}

func (b *buckets) setBack(now time.Time) {
	b.minute = now.Unix() / 60
	for _, one := range b.of {
		one.greatest.setBack(b.minute)
		one.limited.setBack(b.minute)
		one.at = earlier(one.at, now)
	}
}

func (l *limiters) setBack(now time.Time) {
	to := now.Unix() / 60
	l.drop(to+1, min(l.minute, to+hour))
	l.minute = to
}

func (s *sources) setBack(now time.Time) {
	for _, one := range s.byID {
		one.heard, one.stateBy, one.lacking = earlier(one.heard, now), earlier(one.stateBy, now), earlier(one.lacking, now)
		one.sent.setBack(now.Unix())
	}
}
