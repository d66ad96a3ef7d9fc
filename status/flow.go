package status

// flow is how many batches may be under way at once: one more after a whole
// window of successes, half after an overload, never above most or below one.
// It is not safe for concurrent use: the merger holds it under its mutex.
type flow struct {
	most  int
	limit int
	busy  int
	good  int // successes since the limit last moved
	cuts  int // times the limit was halved
}

func newFlow(most int) flow { return flow{most: most, limit: most} }

// full reports whether another batch has to wait.
func (f *flow) full() bool { return f.busy >= f.limit }

// start takes a place. The mark goes back to end.
func (f *flow) start() (mark int) {
	f.busy++
	return f.cuts
}

// end gives the place back, and reports whether there is room for one more
// than before. Of all batches that were under way when the limit was halved,
// none halves it again: their overload is the same one.
func (f *flow) end(mark int, failure failure) (grew bool) {
	f.busy--
	switch {
	case failure.overload():
		if mark == f.cuts {
			f.limit = max(1, f.limit/2)
			f.cuts++
		}
		f.good = 0
	case failure == noFailure && f.limit < f.most:
		f.good++
		if f.good >= f.limit {
			f.limit, f.good = f.limit+1, 0
			return true
		}
	}
	return false
}
