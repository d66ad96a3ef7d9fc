package quota

import (
	"context"
	"math"
	"sync"
	"time"
)

const (
	// MaxWait is how long a message may wait for a lease.
	MaxWait = 50 * time.Millisecond
	// firsts is how many requests may wait at once, of all senders, until Redis has answered
	// this gateway for the first time, or counts as away. That takes longer, as it opens its
	// connections then. They take up requests of the server meanwhile, so they are few.
	firsts = 100
	// fresh is how long it is believed that nothing is left.
	fresh = int64(300 * time.Millisecond)
	// kept is how long a lease that came too late is kept for those who come again: they are
	// told to do so within two seconds.
	kept = int64(3 * time.Second)
	// lead is how long before a window begins it is leased.
	lead = int64(150 * time.Millisecond)
)

// Sender is what one sender may send through this gateway. It is safe for concurrent use.
type Sender struct {
	name   string
	quotas *Quotas
	keys   []string // in Redis: two of each window

	mu      sync.Mutex // guards all below
	clock   clock
	windows []window
	demand  demand
	waiting int64         // messages of those who wait
	missed  int64         // the most messages of one that waited, and had no answer in time
	claimed int64         // when so many were last wanted
	changed chan struct{} // closed, and made anew, when something may have changed; nil = nobody waits
	away    bool          // Redis is away: each gateway has its part
	silent  int64         // when the first ask began that had no answer; 0 = the last one had one
	seq     int64         // of the last ask
	asked   int64         // when it began
	heard   int64         // when one was last answered
	took    int64         // how long that took
	busy    bool          // it is among those that ask
	roused  bool          // it is to ask at once
	leads   int64         // when it is to ask for windows that come
	counts  counts
	told    int64 // how many messages were asked for when Fullest told last
}

// Taken is what a request has been admitted: messages, and the windows that they were counted
// in, which are two sets where a window ended while it waited. The zero value is nothing.
type Taken struct{ first, then taken }

type taken struct {
	n       int
	numbers [maxPolicies]int64
}

// Len is how many messages were admitted.
func (t *Taken) Len() int { return t.first.n + t.then.n }

// Take admits up to n messages. If there is no lease for all of them, and it is not known that
// none can be had, it waits for one, until ctx ends and for MaxWait at the most: for a second
// if it is not known yet whether Redis is there.
func (s *Sender) Take(ctx context.Context, n int) (t Taken) {
	now := s.quotas.now()
	s.mu.Lock()
	s.demand.wanted += int64(n)
	if int64(n) >= s.missed {
		s.claimed = now
	}
	s.grab(now, n, &t)
	if t.Len() < n {
		s.await(ctx, now, n, &t)
		if missing := n - t.Len(); missing > 0 {
			s.counts.refused += int64(missing)
			s.refuse(missing)
		}
	}
	s.counts.admitted += int64(t.Len())
	rouse := s.short(now)
	s.mu.Unlock()
	if rouse {
		s.quotas.rouse(s)
	}
	return t
}

// grab takes what is held, up to n together with what t has. The caller holds mu.
func (s *Sender) grab(now int64, n int, t *Taken) {
	if !s.clock.set {
		return
	}
	earliest, latest := s.clock.span(now, s.away)
	got := int64(n - t.Len())
	into := &t.first
	for i := range s.windows {
		w := &s.windows[i]
		if latest >= w.end {
			s.roll(w, latest)
		}
		if !w.begun(earliest) {
			got = 0
		}
		got = min(got, w.cur.held)
	}
	if got <= 0 {
		return
	}
	if into.n > 0 && !s.sameWindows(into) {
		if into = &t.then; into.n > 0 && !s.sameWindows(into) {
			return // a third set: it has waited for long enough
		}
	}
	for i := range s.windows {
		p := &s.windows[i].cur
		p.held -= got
		p.used += got
		into.numbers[i] = p.number
	}
	into.n += int(got)
}

// roll goes on to the next window. The caller holds mu.
func (s *Sender) roll(w *window, latest int64) {
	if w.roll(latest) && s.away {
		w.share(s.quotas.gateways())
	}
	s.plan()
}

// sameWindows reports whether the windows are those that something was counted in.
func (s *Sender) sameWindows(t *taken) bool {
	for i := range s.windows {
		if t.numbers[i] != s.windows[i].cur.number {
			return false
		}
	}
	return true
}

// await is the rest of Take: it waits. The caller holds mu, which is not locked meanwhile.
func (s *Sender) await(ctx context.Context, now int64, n int, t *Taken) {
	until, early := now+int64(MaxWait), s.quotas.comesFirst()
	if early {
		until += int64(silence + every)
		defer s.quotas.early.Add(-1)
	}
	for now < until && !s.hopeless(now) {
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed, missing, pause := s.changed, int64(n-t.Len()), s.pause(now, until)
		s.waiting += missing
		s.mu.Unlock()
		s.quotas.rouse(s)
		ended := wait(ctx, changed, pause)
		now = s.quotas.now()
		s.mu.Lock()
		s.waiting -= missing
		if s.grab(now, n, t); ended || t.Len() == n {
			return
		}
		if early && s.quotas.known.Load() { // from now on it waits as others do
			until, early = min(until, now+int64(MaxWait)), false
		}
	}
	if missing := int64(n - t.Len()); now >= until && missing >= s.missed {
		s.missed, s.claimed = missing, now
	}
}

// wait waits for a change, or a time, and reports whether ctx has ended.
func wait(ctx context.Context, changed <-chan struct{}, pause time.Duration) (ended bool) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return true
	}
	return false
}

// pause is until when it waits at the most: a window of which there is a lease may begin
// before. The caller holds mu.
func (s *Sender) pause(now, until int64) time.Duration {
	d := until - now
	if s.clock.set {
		earliest, _ := s.clock.span(now, s.away)
		for i := range s.windows {
			if w := &s.windows[i]; !w.begun(earliest) {
				begins := w.end - w.length - earliest
				d = min(d, begins+drift(begins)+int64(time.Microsecond))
			}
		}
	}
	return time.Duration(d)
}

// hopeless reports whether it is known that a window has nothing for anybody. The caller holds
// mu.
func (s *Sender) hopeless(now int64) bool {
	if !s.clock.set {
		return false
	}
	earliest, _ := s.clock.span(now, s.away)
	for i := range s.windows {
		w := &s.windows[i]
		switch {
		case !w.begun(earliest) || w.cur.held > 0:
		case s.away && w.cur.shared:
			return true
		case !s.away && w.cur.told && now-s.heard < fresh && w.free(&w.cur) == 0:
			return true
		}
	}
	return false
}

// short reports whether it is to ask before its time: it is one that does not ask yet, or too
// little is held, or a window begins soon. The caller holds mu.
func (s *Sender) short(now int64) bool {
	if s.roused || !s.busy {
		return !s.busy
	}
	if now >= s.leads {
		return true
	}
	for i := range s.windows {
		if w := &s.windows[i]; w.cur.held < w.low {
			return now-s.asked >= int64(apart)
		}
	}
	return false
}

// plan decides when it is short. The caller holds mu.
func (s *Sender) plan() {
	s.leads = math.MaxInt64
	for i := range s.windows {
		w := &s.windows[i]
		w.low = 0
		if s.away || s.demand.target == 0 || !s.quotas.ahead(w.Limit) {
			continue
		}
		if w.free(&w.cur) > 0 {
			w.low = s.demand.target / 2
		}
		if !w.next.told {
			s.leads = min(s.leads, w.end-lead-s.took-s.clock.hi)
		}
	}
}

// Return gives n of what was admitted back, the last first: those messages were not sent.
// What was counted in a window that is over stays counted there.
func (s *Sender) Return(t *Taken, n int) {
	s.mu.Lock()
	idle := !s.busy
	s.back(t, n)
	s.mu.Unlock()
	if idle {
		s.quotas.rouse(s) // others may need it
	}
}

// back is Return. The caller holds mu.
func (s *Sender) back(t *Taken, n int) {
	for _, of := range []*taken{&t.then, &t.first} {
		back := min(n, of.n)
		of.n, n = of.n-back, n-back
		s.counts.returned += int64(back)
		for i := range s.windows {
			if p := s.windows[i].at(of.numbers[i]); p != nil {
				back := min(int64(back), p.used)
				p.used -= back
				p.held += back
			}
		}
	}
}

// Standings appends how far the sender has come in each window, in the order of the policies.
func (s *Sender) Standings(out []Standing) []Standing {
	now := s.quotas.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.clock.set {
		s.guess(now)
	}
	_, latest := s.clock.span(now, s.away)
	for i := range s.windows {
		w := &s.windows[i]
		if latest >= w.end {
			s.roll(w, latest)
		}
		st := Standing{Policy: w.Policy, Reset: time.Duration(w.end - latest), Part: s.away}
		st.Used = w.has()
		if st.Remaining = w.Limit - st.Used; s.away {
			st.Remaining = min(st.Remaining, int(w.cur.held))
		}
		out = append(out, st)
	}
	return out
}

// Refresh asks Redis, and waits for the answer for MaxWait at the most.
func (s *Sender) Refresh(ctx context.Context) {
	s.mu.Lock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	changed := s.changed
	s.mu.Unlock()
	s.quotas.rouse(s)
	wait(ctx, changed, MaxWait)
}

// guess takes the wall clock for Redis's, which has not been heard yet. The caller holds mu.
func (s *Sender) guess(now int64) {
	wall := time.Now().UnixNano()
	s.clock.guess(wall, now)
	for i := range s.windows {
		s.windows[i].roll(wall)
	}
}
