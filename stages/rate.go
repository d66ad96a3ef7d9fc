package stages

// Rate is how many records a lane begins to send a second, by its last good minute: 60
// seconds, not necessarily in a row, at whose beginning and end something waited, and
// with others around them in which something was sent. So neither an idle night nor a
// pause of a provider counts. The zero value knows nothing; it belongs to one goroutine.
type Rate struct {
	good [goodSeconds]good // a ring
	next int               // place in good

	seconds int64 // told so far
	last    second
	before  bool // whether something was sent in the second before the last
}

type second struct {
	sent   uint64
	behind bool
}

type good struct {
	at   int64 // which second it was, from 1; 0 = none
	sent uint64
}

const (
	goodSeconds = 60
	// leastGood is how many good seconds say something.
	leastGood = 10
	// goodFor is for how many seconds a good one counts: what a lane could do longer
	// ago is not known to hold.
	goodFor = 15 * 60
)

// Second tells how many records were begun in the second that is over, and whether
// something waited at its beginning and at its end. The second before it is judged now.
func (r *Rate) Second(sent uint64, behind bool) {
	if r.last.behind && r.last.sent > 0 && r.before && sent > 0 {
		r.good[r.next] = good{r.seconds, r.last.sent}
		r.next = (r.next + 1) % goodSeconds
	}
	r.before = r.last.sent > 0
	r.last = second{sent, behind}
	r.seconds++
}

// PerSecond returns the rate; 0 = not known.
func (r *Rate) PerSecond() float64 {
	var sum, n uint64
	for _, g := range r.good {
		if g.at > 0 && r.seconds-g.at <= goodFor {
			sum, n = sum+g.sent, n+1
		}
	}
	if n < leastGood {
		return 0
	}
	return float64(sum) / float64(n)
}
