package status

// flow is how much may be in flight at once, in eighths of a full batch: one
// batch more after a whole window of successes, half after an overload, never
// above most, and always enough for one batch. It is not safe for concurrent
// use: the merger holds it under its mutex.
//
// A batch of one row weighs an eighth, which is more than it costs the server.
// If batches were counted instead, ids that only make such batches (all but
// UUIDv7) would leave the store idle.
type flow struct {
	most  int
	limit int
	busy  int
	good  int // weight of the successes since the limit last moved
	cuts  int // times the limit was halved
}

// fullWeight is the weight of a full batch.
const fullWeight = 8

// newFlow has room for this many full batches.
func newFlow(batches int) flow {
	return flow{most: batches * fullWeight, limit: batches * fullWeight}
}

// weightOf is the weight of a batch that is full to size of most.
func weightOf(size, most int) int {
	return min(max(1, (size*fullWeight+most-1)/most), fullWeight)
}

// fits reports whether a batch of this weight need not wait.
func (f *flow) fits(weight int) bool { return f.busy == 0 || f.busy+weight <= f.limit }

// start takes the place of a batch. Pass the returned mark to end.
func (f *flow) start(weight int) (mark int) {
	f.busy += weight
	return f.cuts
}

// end gives the place back. Batches that were in flight when the limit was
// halved do not halve it again: their overload is the same one.
func (f *flow) end(weight, mark int, failure failure) {
	f.busy -= weight
	switch {
	case failure.overload():
		if mark == f.cuts {
			f.limit = max(1, f.limit/2)
			f.cuts++
		}
		f.good = 0
	case failure == noFailure:
		f.good += weight
		if f.good >= f.limit {
			f.limit, f.good = min(f.limit+fullWeight, f.most), 0
		}
	}
}
