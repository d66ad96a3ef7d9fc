package fanout

import "time"

const (
	// busy is for how long workers must have had work left, at both ends of a second, to have
	// done all that they can in it.
	busy = 200 * time.Millisecond
	// stale is how old an answer may be to say with the next one what was done in between.
	stale = 10 * lookEvery
	// believed is the part of a difference that one second changes of what is believed.
	believed = 0.5
	// leap is how much more than twice of what is believed a second may show, in records: offsets
	// that somebody moves are no work.
	leap = 10_000
	// standsAfter is how long a partition is behind and passes nothing until it stands still.
	standsAfter = 10 * time.Second
)

// drain is how many records a second a lane's workers do when they have enough, as learned
// from one answer after another. It is not safe for concurrent use.
type drain struct {
	rate   float64
	last   Backlog
	moving int64               // of last, in partitions that do not stand still
	heard  time.Time           // when last came; zero = never
	passed map[int32]time.Time // when a partition had passed something, or all
}

// learn follows how many records the workers do in a second: at least as many as they did,
// and no more where they had work left all the while. It returns how far they are behind, and
// apart from that in partitions that stand still: those wait for an operator or another worker,
// and keep nothing else waiting. Where all stand still nobody works, and they all count.
func (d *drain) learn(now time.Time, b Backlog) (moving, stuck int64) {
	moving, stuck = d.standing(now, b)
	took, passed := now.Sub(d.heard), d.passedSince(b)
	if !d.heard.IsZero() && took > 0 && took <= stale && passed >= 0 {
		rate := min(float64(passed)/took.Seconds(), 2*d.rate+leap)
		if rate > d.rate || float64(min(d.moving, moving)) > rate*busy.Seconds() {
			d.rate += believed * (rate - d.rate)
		}
	}
	d.last, d.moving, d.heard = b, moving, now
	return moving, stuck
}

// passedSince is how many records were passed since the last answer; below 0 = a partition
// went back.
func (d *drain) passedSince(b Backlog) (sum int64) {
	for k, s := range b {
		if was, known := d.last[k]; known {
			if s.Passed < was.Passed {
				return -1
			}
			sum += s.Passed - was.Passed
		}
	}
	return sum
}

// standing adds up what is behind, and apart from that where it stands still.
func (d *drain) standing(now time.Time, b Backlog) (moving, stuck int64) {
	since := make(map[int32]time.Time, len(b))
	recent, still := now.Sub(d.heard) <= stale, 0
	for k, s := range b {
		since[k] = now
		if was, known := d.last[k]; recent && known && was.Behind > 0 && s.Behind > 0 && s.Passed == was.Passed {
			since[k] = d.passed[k]
		}
		if now.Sub(since[k]) >= standsAfter {
			still++
			stuck += s.Behind
		} else {
			moving += s.Behind
		}
	}
	d.passed = since
	if still == len(b) {
		return stuck, 0
	}
	return moving, stuck
}
