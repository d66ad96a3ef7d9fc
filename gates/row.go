package gates

import "slices"

// row is the bad answers since the last good one. At low rates it closes a route
// long before there are answers enough to judge by their share.
type row struct {
	counted int
	first   uint32   // a connection that some of them came over; 0 = none is known
	two     bool     // others came over another one
	ended   []uint32 // connections whose end is counted; it never grows beyond its capacity
}

func newRow(failures int) row { return row{ended: make([]uint32, 0, failures)} }

func (r *row) reset() { *r = row{ended: r.ended[:0]} }

// bad counts a bad answer, which came over this connection. The end of a
// connection counts once, whatever was on it. Answers over unknown ones (0) count as
// if all came over one connection, which alone proves nothing: it may be the
// connection that is broken, and not the route.
func (r *row) bad(conn uint32, ended bool) {
	switch {
	case r.first == 0:
		r.first = conn
	case conn != 0 && conn != r.first:
		r.two = true
	}
	if ended {
		if slices.Contains(r.ended, conn) {
			return
		}
		if len(r.ended) < cap(r.ended) {
			r.ended = append(r.ended, conn)
		}
	}
	r.counted++
}

// proves reports whether there are so many, over more than one connection.
func (r *row) proves(failures int) bool { return failures > 0 && r.two && r.counted >= failures }
