package dashboard

import "time"

// delivered is the state of what a provider has accepted.
const delivered = "DELIVERED"

// duplicate is the state of a copy, which has no row.
const duplicate = "DUPLICATE"

// ring counts by a unit of time, the last len(slots) of them. newest is the number of
// the latest unit, as the number of units since 1970.
type ring struct {
	slots  []int64
	newest int64
}

func newRing(n int) ring { return ring{slots: make([]int64, n)} }

// add counts n in the unit at. What is older than the ring is dropped.
func (r *ring) add(at, n int64) {
	if slot := r.slot(at); slot != nil {
		*slot += n
	}
}

// slot is where the unit at is counted; nil = it is older than the ring.
func (r *ring) slot(at int64) *int64 {
	size := int64(len(r.slots))
	if at > r.newest {
		for u := max(r.newest+1, at-size+1); u <= at; u++ {
			r.slots[u%size] = 0
		}
		r.newest = at
	}
	if at <= r.newest-size || at < 0 {
		return nil
	}
	return &r.slots[at%size]
}

// sum adds up the units from (inclusive) to (exclusive).
func (r *ring) sum(from, to int64) (n int64) {
	size := int64(len(r.slots))
	for u := max(from, r.newest-size+1, 0); u < min(to, r.newest+1); u++ {
		n += r.slots[u%size]
	}
	return n
}

const (
	seconds = 900  // of the sparkline of 15 minutes
	minutes = 1440 // of that of 24 hours
	// maxSeries bounds the pairs of lane and state that have a history, which is
	// 19 KB each: 32 lanes with all states.
	maxSeries = 400
)

// series is what has a history.
type series struct{ lane, state string }

type track struct{ seconds, minutes ring }

// history is the counts of the last 15 minutes by second, and of the last 24 hours by
// minute.
type history struct{ tracks map[series]*track }

func newHistory() history { return history{tracks: make(map[series]*track)} }

func (h *history) add(lane, state string, at time.Time, n int64) {
	k := series{lane, state}
	t := h.tracks[k]
	if t == nil && len(h.tracks) >= maxSeries {
		k = series{other, other}
		t = h.tracks[k]
	}
	if t == nil {
		t = &track{newRing(seconds), newRing(minutes)}
		h.tracks[k] = t
	}
	t.seconds.add(at.Unix(), n)
	t.minutes.add(at.Unix()/60, n)
}

// points are the counts of some series in steps of time that end before end, the oldest
// first: a curve.
func points(of []*track, which func(*track) *ring, end, step int64, count int) []int64 {
	out := make([]int64, count)
	for _, t := range of {
		r := which(t)
		for i := range out {
			from := end - int64(count-i)*step
			out[i] += r.sum(from, from+step)
		}
	}
	return out
}
