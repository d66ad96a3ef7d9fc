package gates

import "time"

// windowSlices is the number of parts of an answerWindow's span: it forgets a
// tenth at a time.
const windowSlices = 10

// answerWindow counts good and bad answers of the last span.
type answerWindow struct {
	slice  time.Duration
	start  time.Time // of the newest slice; zero = nothing counted yet
	newest int
	counts [windowSlices]struct{ good, bad int }
}

func newAnswerWindow(span time.Duration) answerWindow {
	return answerWindow{slice: span / windowSlices}
}

func (w *answerWindow) reset() { *w = answerWindow{slice: w.slice} }

// move forgets what is older than the span.
func (w *answerWindow) move(now time.Time) {
	if w.start.IsZero() {
		w.start = now
	}
	passed := max(now.Sub(w.start)/w.slice, 0) // a clock that goes back forgets nothing
	for range min(passed, windowSlices) {
		w.newest = (w.newest + 1) % windowSlices
		w.counts[w.newest].good, w.counts[w.newest].bad = 0, 0
	}
	w.start = w.start.Add(passed * w.slice)
}

func (w *answerWindow) add(now time.Time, bad bool) {
	w.move(now)
	if bad {
		w.counts[w.newest].bad++
	} else {
		w.counts[w.newest].good++
	}
}

// sums are the answers of the last span.
func (w *answerWindow) sums(now time.Time) (good, bad int) {
	w.move(now)
	for _, c := range w.counts {
		good, bad = good+c.good, bad+c.bad
	}
	return good, bad
}

// pauses remembers when a gate was not open, as far back as span.
type pauses struct {
	span  time.Duration
	since time.Time // start of the current one; zero = none
	over  []stretch // in order
}

type stretch struct{ from, to time.Time }

func (p *pauses) begin(now time.Time) { p.since = now }

func (p *pauses) end(now time.Time) {
	kept := p.over[:0]
	for _, s := range p.over {
		if now.Sub(s.to) < p.span {
			kept = append(kept, s)
		}
	}
	p.over = append(kept, stretch{p.since, now})
	p.since = time.Time{}
}

// within is how much of the last span was paused.
func (p *pauses) within(now time.Time) (total time.Duration) {
	first := now.Add(-p.span)
	clip := func(from, to time.Time) time.Duration {
		if from.Before(first) {
			from = first
		}
		return max(to.Sub(from), 0)
	}
	for _, s := range p.over {
		total += clip(s.from, s.to)
	}
	if !p.since.IsZero() {
		total += clip(p.since, now)
	}
	return total
}
