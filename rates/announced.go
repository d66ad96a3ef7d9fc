package rates

import "time"

const (
	// heard is how long what a provider has announced is news.
	heard = 2 * time.Second
	// apartBy is how wrong an announcement may be in time: whole seconds are told, of a
	// moment that was a while ago.
	apartBy = time.Second
	// tooFast is how much more than is left the rate must lead to, and moreLeft the part of
	// what is left that it must not use, for the rate to change.
	tooFast, moreLeft = 0.01, 0.05
	// overdue is how long after the end of a window the next one is waited for, before the
	// rate that the last one led to is given up.
	overdue = 5 * time.Second
	// mostAnnounced is how many changes in a minute announcements may lead to at one worker;
	// one that has led to more is not heeded for a while, nor one that proved wrong.
	mostAnnounced = 20
	unheeded      = 10 * time.Minute
)

// announced is what a provider says of its window before that is used up, as one worker hears
// it. Rate.mu guards it. The zero value is of a provider that says nothing.
type announced struct {
	left  int
	ends  time.Time // of the window
	at    time.Time // when it was said; zero = never
	said  int       // how often since the last look, of so many answers
	among int

	accepted int // by the provider, of this worker's
	ceiling  int // accepted can become no more until the window ends, if the provider says the truth

	held    bool      // this worker has proposed a rate for it
	minute  time.Time // the one in which changes are counted
	changes int
	deaf    time.Time // until then nothing is heeded: it proved wrong
	firm    time.Time // until then it raises no rate: a 429 came all the same
}

// Announced is called with what an answer announces: that the provider takes left more until
// its window ends, from now on. It is heeded as far as most answers announce something, and as
// what comes later does not prove it wrong.
func (r *Rate) Announced(now time.Time, left int, ends time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.announced
	a.said++
	switch fits := a.accepted + left; {
	case a.at.IsZero() || !now.Before(a.ends.Add(-apartBy)): // the window there was is over
		a.ceiling = fits
	case fits > a.ceiling+r.slack():
		a.distrust(now) // more is left than before, though it goes on
	default:
		a.ceiling = min(a.ceiling, fits)
	}
	a.left, a.ends, a.at = left, now.Add(ends), now
}

// slack is what may be accepted beyond an announcement that is true: answers overtake each
// other. The caller holds mu.
func (r *Rate) slack() int { return int(max(r.limit(), slowest)*apartBy.Seconds()) + 10 }

// distrust has nothing heeded for a while.
func (a *announced) distrust(now time.Time) { a.deaf = now.Add(unheeded) }

// answeredBy notes answers. The caller holds mu.
func (r *Rate) answeredBy(now time.Time, good, overQuota int) {
	a := &r.announced
	a.among += good + overQuota
	if a.accepted += good; a.at.IsZero() {
		return
	}
	if now.Before(a.ends.Add(-apartBy)) && a.accepted > a.ceiling+r.slack() {
		a.distrust(now)
	}
	if overQuota > 0 && now.Sub(a.at) < heard && a.left > r.slack() {
		a.firm = now.Add(unheeded) // another limit than that one is hit
	}
}

// heeds looks at what has come since the last look, and reports whether what is announced
// is news and to be believed: one connection of many may lead by way of somebody who
// announces a limit of its own.
func (a *announced) heeds(now time.Time) bool {
	most := 2*a.said >= a.among
	a.said, a.among = 0, 0
	return most && now.Sub(a.at) < heard && now.Before(a.ends) && !now.Before(a.deaf)
}

// heed is what follows from what is announced, where next and cause follow from answers: a
// rate at which what is left of the window lasts until its end. 429s and failures have the
// first word. The caller holds mu.
func (r *Rate) heed(now time.Time, all seen, next State, cause Cause) (State, Cause) {
	a := &r.announced
	if a.at.IsZero() || cause == CauseQuota || cause == CauseFailing || r.over > 0 {
		return next, cause
	}
	s, top := limited(r.store.base, r.state)
	if !a.heeds(now) {
		return r.giveUp(now, all, s, top, next, cause)
	}
	if all.age < settling && r.state.Rate > 0 {
		return r.state, "" // what is under way was sent at another rate
	}
	s, top = begun(s, top, all.peak)
	left, seconds := float64(a.left), a.ends.Sub(now).Seconds()
	beyond := func(rate float64) bool { return rate*(seconds-apartBy.Seconds()) > (1+tooFast)*left }
	to := min(max(left/seconds, r.factors.Floor*top, slowest), top)
	switch {
	case beyond(s.Rate) && to < s.Rate:
		s.Mark = to
	case (1-moreLeft)*left <= s.Rate*(seconds+apartBy.Seconds()), s.Mark == 0, now.Before(a.firm):
		if cause != "" && beyond(next.Rate) {
			return r.state, ""
		}
		return next, cause
	case s.Rate == s.Mark && to > s.Rate: // it is what was announced before
		s.Mark = to
	case s.Rate < s.Mark && to > (1+moreLeft)*s.Mark: // it comes back by itself, up to the mark
		s.Mark, to = to, s.Rate
	default:
		return next, cause
	}
	a.propose(now)
	if to >= top {
		return up(s, r.store.base, top, to), CauseAnnounced
	}
	s.Epoch, s.Rate = s.Epoch+1, to
	return s, CauseAnnounced
}

// propose counts a change. Too many prove that what is announced is of no use.
func (a *announced) propose(now time.Time) {
	if now.Sub(a.minute) >= time.Minute {
		a.minute, a.changes = now, 0
	}
	if a.changes++; a.changes > mostAnnounced {
		a.distrust(now)
	}
	a.held = true
}

// giveUp lets a rate go that was announced, when the window is over and no other one has been
// announced, or it has proved wrong: it recovers as quickly as it can then.
func (r *Rate) giveUp(now time.Time, all seen, s State, top float64, next State, cause Cause) (State, Cause) {
	a := &r.announced
	over := now.Before(a.deaf) || now.Sub(a.ends) >= overdue
	switch {
	case !a.held || !over || all.age < settling || all.good == 0:
		return next, cause
	case s.Rate == 0 || s.Rate != s.Mark:
		a.held = false // something else has come between
		return next, cause
	}
	a.held = false
	s.Mark = 0
	return up(s, r.store.base, top, min(2*s.Rate, top)), CauseAnnounced
}
