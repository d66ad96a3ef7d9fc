package dlq

import "strings"

// remembered is how many ids a replay knows at least. With ids of at most 64 bytes these,
// and as many that are about to be forgotten, are some 40 MB.
const remembered = 1 << 17

// recent is a set that forgets: it has the latest most of what was added, and never more
// than twice as many.
type recent struct {
	most        int
	now, before map[string]struct{}
}

// add adds an id, of which it keeps a copy.
func (r *recent) add(id string) {
	if r.now == nil || len(r.now) == r.most {
		r.now, r.before = make(map[string]struct{}), r.now
	}
	r.now[strings.Clone(id)] = struct{}{}
}

func (r *recent) has(id string) bool {
	_, now := r.now[id]
	_, before := r.before[id]
	return now || before
}
