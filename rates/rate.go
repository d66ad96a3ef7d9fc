package rates

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// every is the least time between two asks, and the time between them while
	// something is sent under a limit; rarely is the time between them otherwise.
	every  = 100 * time.Millisecond
	rarely = 500 * time.Millisecond
	// apart is what chance adds at the most, so that no worker always comes last.
	apart = 10 * time.Millisecond
	// patience is how long an answer is waited for.
	patience = 250 * time.Millisecond
	// answered is how soon after an ask a sender looks again, and soonest how soon it
	// looks again at all: a group costs little more than one send.
	answered = 2 * time.Millisecond
	soonest  = 2 * time.Millisecond
	// warm is the least demand of what has just sent something.
	warm = 4
)

// Rate is one rate as one worker has it: a gates.Rate. All methods may be called at
// once; Run once.
type Rate struct {
	store   store
	factors Factors
	log     *slog.Logger
	metrics rateMetrics
	tell    func(Change)  // by exchange alone, without mu
	wake    chan struct{} // capacity 1, never closed: something is missing, or wrong
	weigh   func() int    // what the demand is beside that of other workers; nil = as it is

	mu      sync.Mutex // guards all below
	state   State
	members int       // workers that share it, as told last
	seen    seen      // of the fleet, as told last
	told    time.Time // when
	good    int       // own answers to sends of the state's epoch that are not told yet; so are the next two
	over    int       // 429
	failed  int
	refused time.Time // when the first of over came
	taken   int       // own good answers of any epoch that are not told yet
	hidden  bool      // some of taken are from long ago, or not there
	news    []news    // not told to log and others yet
	out     output
	others  demand
	urgent  demand
	asked   time.Time // when the last ask began
	share   share
	away    alone

	announced announced
}

// demand is what a worker wants to send, of one kind.
type demand struct {
	used   int // since the last ask
	missed int // the most that was asked for in vain at once since then
	gross  int // what follows: sends until the next ask but one
}

// next ends what was since the last ask. What falls idle wants less and less.
func (d *demand) next() {
	now := d.used + d.used/2 + 2*d.missed
	if now > 0 {
		now = max(now, warm)
	}
	d.gross = max(now, d.gross*3/4)
	d.used, d.missed = 0, 0
}

// limit is the fleet's rate as far as this worker uses it: others may be configured
// otherwise. 0 = there is none. The caller holds mu.
func (r *Rate) limit() float64 {
	if base := r.store.base; base > 0 && (r.state.Rate == 0 || r.state.Rate > base) {
		return base
	}
	return r.state.Rate
}

// Take takes up to n sends and returns how many may be made now, and the epoch under
// which. If none may, again is when to ask next: not sooner. Urgent sends are served
// from what is kept for them too.
func (r *Rate) Take(now time.Time, urgent bool, n int) (got int, epoch uint32, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(now, urgent, n)
}

// demandOf is the demand of one kind. The caller holds mu.
func (r *Rate) demandOf(urgent bool) *demand {
	if urgent {
		return &r.urgent
	}
	return &r.others
}

// take is Take. The caller holds mu.
func (r *Rate) take(now time.Time, urgent bool, n int) (got int, epoch uint32, again time.Time) {
	if r.out.rate == 0 {
		return n, r.state.Epoch, time.Time{}
	}
	got, epoch, again = r.out.take(now, urgent, n)
	d := r.demandOf(urgent)
	d.used += got
	if got > 0 {
		return got, epoch, time.Time{}
	}
	d.missed = max(d.missed, n)
	switch {
	case !again.IsZero():
	case r.away.since.IsZero():
		r.rouse()
		again = r.asked.Add(every + answered)
	default:
		again = now.Add(every) // its part is used up
	}
	if least := now.Add(soonest); again.Before(least) {
		again = least
	}
	return 0, 0, again
}

// Epoch is the one that answers count for.
func (r *Rate) Epoch() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Epoch
}

// Answered counts answers to sends of an epoch; of an earlier one they say nothing of
// the rate any more. What comes right after a change may still be its cause's.
func (r *Rate) Answered(now time.Time, epoch uint32, good, overQuota, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken += good // whatever the epoch: the provider has counted it
	r.answeredBy(now, good, overQuota)
	if epoch != r.state.Epoch {
		return
	}
	r.good += good
	r.failed += failed
	if overQuota > 0 && (r.state.Rate == 0 || r.age(now) >= settling) {
		if r.over == 0 {
			r.refused = now
		}
		r.over += overQuota
		r.rouse()
	}
}

// age is that of the epoch. The caller holds mu.
func (r *Rate) age(now time.Time) time.Duration { return r.seen.age + now.Sub(r.told) }

// Now is the rate's name, what the fleet may send a second as this worker knows it, and
// what it is configured with; 0 = no limit. For those who watch it.
func (r *Rate) Now() (name string, rate, base float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.metrics.name, r.limit(), r.store.base
}

func (r *Rate) rouse() {
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// run asks until ctx ends.
func (r *Rate) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.leave(context.WithoutCancel(ctx))
			return
		case <-r.wake:
			timer.Reset(time.Until(r.soonest()))
		case <-timer.C:
			r.exchange(ctx)
			timer.Reset(r.pause() + rand.N(apart))
		}
	}
}

// soonest is when the next ask may be made.
func (r *Rate) soonest() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked.Add(every)
}

// pause is the time until the next ask. A Redis that is away is not asked often.
func (r *Rate) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	busy := r.out.rate > 0 && r.others.gross+r.urgent.gross > 0 || r.over > 0
	if busy && r.away.since.IsZero() {
		return every
	}
	return rarely
}

// leave gives up this worker's part. It is best effort: it lapses otherwise.
func (r *Rate) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.store.leave(ctx); err != nil {
		r.log.Debug("cannot give up the part of a rate: it lapses", "error", err)
	}
}

// exchange asks once, and does what follows.
func (r *Rate) exchange(ctx context.Context) {
	a, cause := r.ask(time.Now())
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	g, err := r.store.exchange(within, &a)
	if ctx.Err() != nil {
		return // the worker ends: nothing is sent
	}
	for _, n := range r.follow(&a, cause, &g, err) {
		r.say(n)
	}
}

// follow does what follows from an ask, and returns what there is to tell of it.
func (r *Rate) follow(a *ask, cause Cause, g *grant, err error) (told []news) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); err != nil {
		r.alone(now, a, cause, err)
	} else {
		r.together(now, a, cause, g)
	}
	told, r.news = r.news, nil
	return told
}

// ask is what is to be told and asked now, and the cause of what it proposes.
func (r *Rate) ask(now time.Time) (a ask, cause Cause) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = now
	a = ask{known: r.state, good: r.good, failed: r.failed, taken: r.taken}
	if r.hidden {
		a.taken, r.taken = -1, 0
	}
	all := r.all(now)
	next, cause := r.factors.next(r.store.base, r.store.window, r.state, all)
	next, cause = r.heed(now, all, next, cause)
	if cause != "" {
		a.proposed = &next
	} else if all.refused >= settling {
		r.over = 0 // they have been judged
	}
	a.judging = cause == "" && r.over > 0
	r.others.next()
	r.urgent.next()
	urgent, others := r.out.held(now)
	a.demand = r.others.gross
	if r.weigh != nil {
		a.demand = r.weigh()
	}
	a.want, a.urgent = max(r.others.gross-others, 0), max(r.urgent.gross-urgent, 0)
	return a, cause
}

// all is what the fleet knew and what this worker has seen since. The caller holds mu.
func (r *Rate) all(now time.Time) seen {
	all := r.seen
	all.age = r.age(now)
	all.good += r.good
	all.recentGood += r.good
	all.recentFailed += r.failed
	all.overQuota = r.over
	if r.over > 0 {
		all.refused = now.Sub(r.refused)
	}
	switch {
	case r.hidden || !r.away.since.IsZero():
		all.taken = -1
	case all.taken >= 0:
		all.taken += r.taken
	}
	return all
}

// together does what follows from an answer. The caller holds mu.
func (r *Rate) together(now time.Time, a *ask, cause Cause, g *grant) {
	if w := r.away; !w.since.IsZero() {
		if w.said {
			r.news = append(r.news, news{away: now.Sub(w.since), back: true})
		}
		r.away = alone{}
		r.out.urgent, r.out.others = nil, nil // what it gave itself
	}
	switch {
	case g.state.Epoch == r.state.Epoch && g.state.Rate == r.state.Rate:
		r.good, r.failed = r.good-a.good, r.failed-a.failed
	case g.changed == "proposed":
		r.change(g.state, cause)
	case g.changed == "lost":
		r.change(g.state, CauseLost)
	default: // another worker did, and tells
		r.become(g.state)
	}
	r.seen, r.told, r.members = g.seen, now, g.members
	r.taken, r.hidden = r.taken-max(a.taken, 0), false
	r.share.grant(now, g.sends+g.urgent)
	rate := r.limit()
	if rate == 0 {
		return
	}
	granted := func(sends int, from time.Duration, pace float64) slot {
		s := slot{from: now.Add(from), step: time.Duration(float64(time.Second) / pace), sends: sends, epoch: r.state.Epoch}
		s.lapses = now.Add(max(from+time.Duration(sends)*s.step, 0) + unused)
		return s
	}
	r.out.add(granted(g.urgent, g.urgentAt, urgentPace*rate), granted(g.sends, g.from, rate))
}

// change is become for a change that this worker has made, which it tells later. The
// caller holds mu.
func (r *Rate) change(to State, cause Cause) {
	from := r.limit()
	r.become(to)
	r.news = append(r.news, news{change: Change{Rate: r.metrics.name, From: from, To: r.limit(), Cause: cause}})
	r.metrics.changes[cause].Inc()
}

// become takes over a state. Answers to what was sent before are no answers to it. The
// caller holds mu.
func (r *Rate) become(to State) {
	r.share.scale(r.state.Rate, to.Rate, r.members)
	r.state = to
	r.seen = seen{peak: r.seen.peak, taken: r.seen.taken}
	r.good, r.over, r.failed = 0, 0, 0
	r.out.rate = r.limit()
	r.metrics.rate.Set(r.out.rate)
}
