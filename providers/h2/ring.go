package h2

import "time"

// ring is a double-ended queue of requests that keeps its memory.
type ring struct {
	buf  []*Request // its length is a power of two
	head int
	n    int
}

func (q *ring) len() int { return q.n }

func (q *ring) at(i int) int { return (q.head + i) & (len(q.buf) - 1) }

func (q *ring) pushBack(r *Request) {
	q.grow()
	q.buf[q.at(q.n)] = r
	q.n++
}

func (q *ring) pushFront(r *Request) {
	q.grow()
	q.head = q.at(len(q.buf) - 1)
	q.buf[q.head] = r
	q.n++
}

func (q *ring) popFront() *Request {
	r := q.buf[q.head]
	q.buf[q.head] = nil
	q.head = q.at(1)
	q.n--
	return r
}

func (q *ring) grow() {
	if q.n < len(q.buf) {
		return
	}
	buf := make([]*Request, max(16, 2*len(q.buf)))
	for i := range q.n {
		buf[i] = q.buf[q.at(i)]
	}
	q.buf, q.head = buf, 0
}

// remove takes r out, and reports whether it was there.
func (q *ring) remove(r *Request) bool {
	for i := range q.n {
		if q.buf[q.at(i)] != r {
			continue
		}
		for ; i < q.n-1; i++ {
			q.buf[q.at(i)] = q.buf[q.at(i+1)]
		}
		q.buf[q.at(i)] = nil
		q.n--
		return true
	}
	return false
}

// removeOverdue moves requests past their deadline, expiry or lease to out and
// keeps the order of the rest.
func (q *ring) removeOverdue(now time.Time, lease Lease, out []*Request) []*Request {
	kept := 0
	for i := range q.n {
		r := q.buf[q.at(i)]
		l := r.Lease
		if l == nil {
			l = lease
		}
		if now.After(r.until) || l != nil && l.Lapsed(now) || !r.Expires.IsZero() && now.After(r.Expires) {
			out = append(out, r)
			continue
		}
		q.buf[q.at(kept)] = r
		kept++
	}
	for i := kept; i < q.n; i++ {
		q.buf[q.at(i)] = nil
	}
	q.n = kept
	return out
}
