package quota

import (
	"math"
	"slices"
	"time"
)

const (
	// every is the time between two asks of a sender that sends, when it has enough; rarely
	// is that while Redis is away.
	every  = 100 * time.Millisecond
	rarely = 500 * time.Millisecond
	// silence is how long Redis does not answer until it is away. Answers that are late are no
	// reason to have a part of one's own: others may have it too.
	silence = time.Second
	// horizon is how far ahead a gateway holds what it needs: somewhat more than every, and as
	// much as an answer takes.
	horizon = 120 * time.Millisecond
	// apart is the least time between two asks.
	apart = 2 * time.Millisecond
	// settles is how long it takes to believe in another demand, and counted the least
	// time in which it is counted.
	settles = 100 * time.Millisecond
	counted = 20 * time.Millisecond
	// idle is how long a sender asks after its last message.
	idle = time.Second
)

// demand is how much a sender sends through this gateway, or would.
type demand struct {
	wanted int64   // since it was counted
	at     int64   // when it was
	last   int64   // when anything was wanted, as counted
	rate   float64 // a second
	target int64   // what should be held
}

// count follows the demand. Of what comes in bursts a part is believed.
func (d *demand) count(now, took int64) {
	passed := now - d.at
	if passed < int64(counted) {
		return
	}
	rate := float64(d.wanted) / time.Duration(passed).Seconds()
	d.rate += (rate - d.rate) * min(float64(passed)/float64(settles), 1)
	if d.wanted > 0 {
		d.last = now
	}
	d.wanted, d.at = 0, now
	d.target = int64(math.Ceil(min(d.rate*(horizon+time.Duration(took)).Seconds(), MaxLimit)))
	if d.rate < 0.5 {
		d.target = 0 // so it ends
	}
}

// known is a part of a window as an ask tells it.
type known struct {
	number int64 // -1 = nothing is told
	count  int64
	others int64 // -1 = Redis has not told of it
}

func (p *part) known() known {
	k := known{p.number, p.count(), -1}
	if p.unsure {
		k.number = -1
	}
	if p.told {
		k.others = p.others
	}
	return k
}

// need is what an ask wants of one window.
type need struct {
	length, limit int64 // in us; messages
	now           int64 // for messages that wait
	ahead         int64
	next          int64 // of the next window
	parts         [2]known
}

// ask is what a sender tells and wants.
type ask struct {
	seq   int64
	sent  int64 // when, by the gateway's clock
	needs [maxPolicies]need
}

// ask is what is to be told and asked now. What it does not need any more is given back by
// it. A gateway that leaves keeps nothing.
func (s *Sender) ask(now int64, leaves bool) (a ask) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand.count(now, s.took)
	s.seq++
	s.asked, s.roused = now, false
	a = ask{seq: s.seq, sent: now}
	var latest int64
	if s.clock.set {
		_, latest = s.clock.span(now, s.away)
	}
	for i := range s.windows {
		w := &s.windows[i]
		if latest >= w.end {
			s.roll(w, latest)
		}
		target := s.demand.target
		if !s.quotas.ahead(w.Limit) {
			target = 0
		}
		waiting := max(s.waiting, s.late(now))
		if leaves {
			target, waiting = 0, 0
		}
		p, n := &w.cur, &a.needs[i]
		if !s.away || leaves { // a part of its own is not leased
			p.keep(target+waiting, 2*target+waiting)
			w.next.keep(target, 2*target)
		}
		*n = need{length: w.length / 1000, limit: int64(w.Limit), now: max(waiting-p.held, 0)}
		if p.held < target {
			n.ahead = target - p.held
		}
		if s.clock.set && latest > w.end-lead-s.took {
			n.next = max(target-w.next.held, 0)
		}
		w.next.asked = w.next.asked || n.next > 0
		n.parts = [2]known{p.known(), w.next.known()}
		if !s.clock.set {
			n.parts[0].number = -1
		}
		if !w.next.asked && !w.next.told && w.next.count() == 0 {
			n.parts[1].number = -1 // it takes the key of the window before this one, which may come back
		}
	}
	return a
}

// late is what was wanted and not leased in time, because Redis is so slow: an ask may have to
// wait for the end of the one before. Those who were refused come again. The caller holds mu.
func (s *Sender) late(now int64) int64 {
	if 2*s.took < int64(MaxWait) || now-s.claimed > kept {
		s.missed = 0
	}
	return s.missed
}

// lease is what Redis says of a part of a window: what it gives, what all have now, and what this
// gateway has. The latter is -1 if it says nothing.
type lease struct{ given, all, own int64 }

// leases are an answer: Redis's time, in us, and of each window the present part and the next.
type leases struct {
	time  int64
	parts [maxPolicies][2]lease
}

// settle does what follows from an answer.
func (s *Sender) settle(now int64, a *ask, l *leases) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock.heard(l.time*1000, a.sent, now)
	_, latest := s.clock.span(now, s.away)
	s.away, s.silent, s.heard, s.took = false, 0, now, now-a.sent
	s.quotas.known.Store(true)
	for i := range s.windows {
		w := &s.windows[i]
		w.reseat(latest)
		number := l.time / (w.length / 1000)
		for k, given := range l.parts[i] {
			p := w.at(number + int64(k))
			if p == nil || given.own < 0 {
				continue // what was given for it lapses
			}
			p.held += given.given
			p.others, p.told, p.shared = max(given.all-given.own, 0), true, false
			if p.unsure {
				p.used, p.unsure = max(given.own-p.held, 0), false
			}
		}
	}
	s.plan()
	s.tell()
}

// unanswered does what follows from an ask without an answer, and reports whether Redis is
// away.
func (s *Sender) unanswered(now int64, a *ask) (away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent == 0 {
		s.silent = max(a.sent, 1)
	}
	if now-s.silent < int64(silence) {
		return false
	}
	if !s.clock.set {
		s.guess(now)
	}
	_, latest := s.clock.span(now, s.away)
	s.away = true
	s.quotas.known.Store(true)
	for i := range s.windows {
		w := &s.windows[i]
		w.roll(latest)
		w.share(s.quotas.gateways())
	}
	s.plan()
	s.tell()
	return true
}

// isAway reports whether Redis is away for this sender.
func (s *Sender) isAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.away
}

// hasUsed reports whether anything was admitted in a window that may still be.
func (s *Sender) hasUsed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.windows, func(w window) bool { return w.cur.used > 0 })
}

// tell wakes those who wait. The caller holds mu.
func (s *Sender) tell() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// due reports whether it is time to ask, and whether it has no reason to any more.
func (s *Sender) due(now int64) (asks, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.roused && (s.silent == 0 || now-s.asked >= int64(every)) {
		return true, false
	}
	if !s.roused && s.done(now) {
		s.busy = false
		return false, true
	}
	pause := int64(every)
	if s.away {
		pause = int64(rarely)
	}
	return now-s.asked >= pause, false
}

// done reports whether there is nothing to ask for or to tell: also what it has had alone is to
// be told. The caller holds mu.
func (s *Sender) done(now int64) bool {
	if s.waiting > 0 || s.late(now) > 0 || s.demand.wanted > 0 || now-s.demand.last < int64(idle) || s.silent != 0 {
		return false
	}
	for i := range s.windows {
		if w := &s.windows[i]; w.cur.held > 0 || w.next.held > 0 {
			return false
		}
	}
	return true
}
