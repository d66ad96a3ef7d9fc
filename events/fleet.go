package events

import (
	"cmp"
	"slices"
	"time"
)

// StateGone is how long after its last state a worker counts as gone: it tells one a
// second.
const StateGone = 5 * time.Second

// mostWorkers bounds how many workers a Fleet knows at a time.
const mostWorkers = 10_000

// Worker is one that has told its state.
type Worker struct {
	Source string
	At     time.Time // when it told, by its clock
	State  *State
}

// Fleet is the workers that tell their states, each with the newest. The zero Fleet is
// ready for use. Not safe for concurrent use.
type Fleet struct {
	workers map[string]heard // by source
}

type heard struct {
	Worker
	by time.Time // when it was heard, by the reader's clock
}

// Hear takes a record that was read at this time, by the reader's clock: of one from
// before it began to read, the time that the record says. It takes the states, and
// passes over all else, what is older than what it has heard, and more workers than a
// fleet has.
func (f *Fleet) Hear(e *Event, at time.Time) {
	if e.State == nil {
		return
	}
	before, known := f.workers[e.Source]
	if known && e.At.Before(before.At) || !known && len(f.workers) >= mostWorkers {
		return
	}
	if f.workers == nil {
		f.workers = make(map[string]heard)
	}
	f.workers[e.Source] = heard{Worker{e.Source, e.At, e.State}, at}
}

// Workers returns those that are there, by name and source, and forgets those that have
// been silent for StateGone. One that has told its last state is gone at once; it is
// known for as long, so that an older state of it that comes late makes it none.
func (f *Fleet) Workers(now time.Time) (there []Worker) {
	for source, h := range f.workers {
		switch {
		case now.Sub(h.by) > StateGone:
			delete(f.workers, source)
		case !h.State.Last:
			there = append(there, h.Worker)
		}
	}
	slices.SortFunc(there, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.State.Worker, b.State.Worker), cmp.Compare(a.Source, b.Source))
	})
	return there
}
