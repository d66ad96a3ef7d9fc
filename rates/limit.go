package rates

import "time"

const (
	// limitName is the rate of a whole fleet in Redis, logs and metrics. What providers
	// count has a name with a slash.
	limitName = "fleet"
	// laneWeight is how many times the share of the next lane each lane but the first
	// has, where there is not enough for all: as of a full connection pool.
	laneWeight = 4
	// waits is how long a lane that got nothing counts as one that waits: somewhat longer
	// than until it asks again.
	waits = 60 * time.Millisecond
	// saved is how far a lane's share may stay behind what was served last, in sends by
	// weight: as far as one take leads, of a chunk if that is less. What a lane did not use
	// before that it cannot make up for.
	saved = 256
)

// Limit is how fast the workers of a fleet send together, whatever the route. It is a
// Rate that no answer changes, and lanes share it: the first one's sends are urgent ones,
// and the others have shares by weight, here and between the workers. What a lane may
// send and then does not, because its route is short of something else, it returns.
type Limit struct {
	rate   *Rate
	lanes  []taking // guarded by rate.mu, as the next
	served float64  // the share of the lane that took last, the first one aside, before it did
}

// taking is one lane of a worker as it shares a Limit.
type taking struct {
	weight  int
	demand  demand
	share   float64   // sends that it took, by weight: who has least comes first
	waits   time.Time // until then it counts as one that waits
	lapses  time.Time // when what it took last would have lapsed
	refused uint64
}

func newLimit(rate *Rate, lanes int) *Limit {
	rate.become(State{}) // the base is all there is: a worker with another one is not bound to this
	l := &Limit{rate: rate, lanes: make([]taking, lanes)}
	weight := 1
	for i := lanes - 1; i >= 0; i-- {
		l.lanes[i].weight = weight
		weight = min(weight*laneWeight, 1<<20)
	}
	rate.weigh = l.weigh
	return l
}

// weigh is what the lanes' demand is beside that of other workers. That of the first lane
// is in it too: what others may have is less for it. The caller holds the rate's mu.
func (l *Limit) weigh() (demand int) {
	for i := range l.lanes {
		t := &l.lanes[i]
		t.demand.next()
		demand += t.weight * t.demand.gross
	}
	return demand
}

// Lane returns the limit as lane i takes of it, numbered from 0, the most urgent first.
func (l *Limit) Lane(i int) *Lane { return &Lane{limit: l, number: i} }

// Lane is a Limit as one lane takes of it. All methods may be called at once.
type Lane struct {
	limit  *Limit
	number int
}

// Take takes up to n sends, at least one, and returns how many may be made now. If none
// may, again is when to ask next: not sooner.
func (a *Lane) Take(now time.Time, n int) (got int, again time.Time) {
	l, r := a.limit, a.limit.rate
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &l.lanes[a.number]
	t.share = max(t.share, l.served-min(saved, r.out.rate*ahead.Seconds()))
	if l.yields(now, a.number) {
		r.others.missed = max(r.others.missed, n)
		again = now.Add(soonest)
	} else {
		got, _, again = r.take(now, a.number == 0, n)
	}
	if got == 0 {
		t.demand.missed = max(t.demand.missed, n)
		t.waits = now.Add(waits)
		t.refused++
		return 0, again
	}
	t.demand.used += got
	if a.number > 0 {
		l.served = t.share
	}
	t.share += float64(got) / float64(t.weight)
	t.waits = time.Time{}
	t.lapses = r.out.lapses
	return got, time.Time{}
}

// yields reports whether it is the turn of another lane that waits. The caller holds the
// rate's mu.
func (l *Limit) yields(now time.Time, lane int) bool {
	if lane == 0 {
		return false
	}
	for i := range l.lanes {
		if t := &l.lanes[i]; i != lane && now.Before(t.waits) && (i == 0 || t.share < l.lanes[lane].share) {
			return true
		}
	}
	return false
}

// Return gives back n of the sends that were taken last and are not made. Others may make
// them, for as long as the grant that they are of lasts.
func (a *Lane) Return(now time.Time, n int) {
	if n <= 0 {
		return
	}
	l, r := a.limit, a.limit.rate
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out.rate == 0 {
		return
	}
	t, urgent := &l.lanes[a.number], a.number == 0
	t.demand.used = max(t.demand.used-n, 0)
	t.share -= float64(n) / float64(t.weight)
	r.out.giveBack(urgent, slot{from: now, lapses: t.lapses, sends: n, epoch: r.state.Epoch})
	d := r.demandOf(urgent)
	d.used = max(d.used-n, 0)
}

// Refused is how often the lane was told to wait, since the start.
func (a *Lane) Refused() uint64 {
	r := a.limit.rate
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.limit.lanes[a.number].refused
}
