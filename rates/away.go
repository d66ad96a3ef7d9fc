package rates

import "time"

const (
	// goOn is how long a worker goes on with the share that it had, while Redis is
	// away.
	goOn = 10 * time.Second
	// alonePart is the part of its share that it uses meanwhile, and idlePart the part of
	// an equal share that one has that had next to none. Together they are not more than
	// all of it.
	alonePart = 0.9
	idlePart  = 0.1
	// unheardPart is the part of the rate that one takes that has never had an answer, and
	// does not know how many others there are: a hundred of them keep the rate. Many start at a
	// time, and a Redis that is slow for all of them just then is not a rare one.
	unheardPart = 0.01
	// aloneAhead is how far it sends ahead of an ask that is not answered: until the
	// next one, after rarely, has failed too.
	aloneAhead = time.Second
	// sayAfter is how long Redis is away before the log says so: one answer that is late
	// is nothing to read of.
	sayAfter = time.Second
)

// alone is what a worker knows while Redis is away.
type alone struct {
	since  time.Time // zero = Redis is there
	until  time.Time // up to when it has given itself slots
	rest   float64   // a part of a send that is left over
	recent time.Time // since when its answers are counted as recent
	said   bool      // to the log
}

// share is how much a worker was granted a second.
type share struct {
	a       float64 // sends a second
	from    time.Time
	granted int
}

// grant counts what came at now.
func (s *share) grant(now time.Time, n int) {
	if passed := now.Sub(s.from); passed >= time.Second {
		s.a = float64(s.granted) / passed.Seconds()
		s.from, s.granted = now, 0
	}
	s.granted += n
}

// scale follows a rate. Of a new limit everybody has an equal share.
func (s *share) scale(from, to float64, members int) {
	switch {
	case from > 0:
		s.a *= to / from
	case to > 0:
		s.a = to / float64(max(members, 1))
	}
}

// alone does what follows from an ask that had no answer: the worker changes the rate by
// its own answers, as if they were the fleet's, and gives itself slots. The caller holds
// mu.
func (r *Rate) alone(now time.Time, a *ask, cause Cause, err error) {
	w := &r.away
	if w.since.IsZero() {
		*w = alone{since: now, until: now, recent: now}
	}
	if !w.said && now.Sub(w.since) >= sayAfter {
		w.said = true
		r.news = append(r.news, news{away: now.Sub(w.since), members: r.members, err: err})
	}
	r.hidden = r.hidden || now.Sub(w.since) >= memberFor
	if cause != "" {
		r.change(*a.proposed, cause)
		r.told, w.recent = now, now
	} else if now.Sub(w.recent) >= recently {
		r.seen.good += r.good
		r.seen.recentGood, r.seen.recentFailed, r.good, r.failed = 0, 0, 0, 0
		w.recent = now
	}
	rate := r.limit()
	if rate == 0 {
		return
	}
	own := r.part(now, rate)
	from, to := now, now.Add(aloneAhead)
	if w.until.After(from) {
		from = w.until
	}
	w.until = to
	sends := own*to.Sub(from).Seconds() + w.rest
	urgent := int(kept * sends)
	others := int(sends) - urgent
	w.rest = sends - float64(urgent+others)
	given := func(sends int) slot {
		return slot{from: from, lapses: to.Add(unused), step: to.Sub(from) / time.Duration(max(sends, 1)), sends: sends, epoch: r.state.Epoch}
	}
	r.out.add(given(urgent), given(others))
}

// part is how much of a rate is this worker's, in sends a second, while it is alone.
// One that has never had an answer knows nothing of the others.
// The caller holds mu.
func (r *Rate) part(now time.Time, rate float64) float64 {
	switch {
	case r.members == 0:
		return unheardPart * rate
	case now.Sub(r.away.since) < goOn:
		return max(alonePart*r.share.a, idlePart*rate/float64(r.members))
	}
	return rate / float64(r.members)
}
