package pipeline

import (
	"context"
	"errors"
	"time"
)

// A sender's topic that takes nothing (it is gone, full, or not allowed) must not hold the
// commit of everybody's records for ever. After refusedFor its ends are dead letters of
// webhooks, until it takes something again. Kafka as a whole is another matter: while it
// takes nothing, everything waits. So before the first ones are buried it is seen that the
// dead letters' topic takes one, and the sender's then still nothing.

const (
	// refusedFor is how long a topic must have taken nothing for its ends to be buried.
	refusedFor = time.Minute
	// triedEvery is how often it is tried again, once they are.
	triedEvery = 10 * time.Second
	// maxDetail is the length in bytes up to which a dead letter says what was answered.
	maxDetail = 200
)

// trouble is what is known of a topic that does not take what it is given.
type trouble struct {
	since  time.Time // zero = there is none
	last   error     // what was answered
	next   time.Time // when the topic is tried again; zero = at once
	alone  bool      // while it took nothing, a dead letter was taken: it is not Kafka as a whole
	logged time.Time
}

// tellOrBury produces what a sender is told to its topic, or, once that has taken nothing
// for long, to the dead letters. It returns what neither has taken, with an error.
func (p *Pipeline) tellOrBury(ctx context.Context, s *telling, hs []Handover) ([]Handover, error) {
	if !time.Now().Before(s.next) {
		before := len(hs)
		left, err := p.produceEnds(ctx, ToEnds, hs)
		if err == nil {
			p.takesAgain(s)
			return nil, nil
		}
		now := time.Now()
		if s.since.IsZero() {
			s.since = now
		}
		s.last, s.next = err, time.Time{}
		if s.alone && len(left) == before {
			s.next = now.Add(triedEvery)
		}
		hs = left
	}
	if time.Since(s.since) < refusedFor {
		return hs, s.last
	}
	return p.bury(ctx, s, hs)
}

// takesAgain ends the trouble with a topic, if there was some.
func (p *Pipeline) takesAgain(s *telling) {
	if !s.logged.IsZero() {
		p.opt.Log.Info("the topic of a sender takes ends again", "lane", p.opt.Lane, "sender", s.sender, "refused", time.Since(s.since).Round(time.Second))
	}
	s.trouble = trouble{}
}

// bury makes ends dead letters: the first of them alone, if it is not known yet whether it
// is only the sender's topic that takes nothing.
func (p *Pipeline) bury(ctx context.Context, s *telling, hs []Handover) ([]Handover, error) {
	n := len(hs)
	if !s.alone {
		n = 1
	}
	for i := range hs[:n] {
		hs[i].Detail = detailOf(s.last)
	}
	left, err := p.produceEnds(ctx, ToDeadEnds, hs[:n:n])
	if err != nil {
		s.alone, s.next = false, time.Time{}
		return append(left, hs[n:]...), err
	}
	s.alone = true
	if now := time.Now(); now.Sub(s.logged) >= logEvery {
		s.logged = now
		p.opt.Log.Error("the topic of a sender takes nothing: what it is told of ends are dead letters of webhooks", "lane", p.opt.Lane, "sender", s.sender, "since", s.since, "error", s.last)
	}
	if len(hs) > n {
		return hs[n:], s.last
	}
	return nil, nil
}

// detailOf is what a dead letter says of an error.
func detailOf(err error) string {
	if partly, ok := errors.AsType[*PartlyError](err); ok {
		err = partly.Err
	}
	text := err.Error()
	return text[:min(len(text), maxDetail)]
}
