package h2

import "time"

// stream is the state of one stream, in a slot that is used again and again.
type stream struct {
	id  uint32   // 0 = the slot is free
	req *Request // nil once it was handed back and only the server has not finished
	// status of the answer once its headers are there; 0 before.
	status int

	left    []byte // of the request's body, held back by flow control
	blocked bool   // it is on the list of those with something left
	credit  int64  // WINDOW_UPDATEs minus what was sent; + the peer's initial = its window
	taken   int    // DATA bytes that came, padding included
	ping    uint64 // with req nil: the PING whose answer frees the slot

	tick       int64 // of the deadline
	prev, next int32 // in the wheel's bucket: slot number + 1, 0 = none
}

// streams are the slots of a connection. A stream's slot is found by its id;
// when the next id's slot is still taken by a slow one, that id is skipped,
// which the protocol allows. The slots are twice as many as streams may be
// open, so a free one is near.
//
// Deadlines hang in a wheel of buckets, one per tick: in and out of it costs a
// few stores and no timer.
type streams struct {
	slots []stream
	mask  uint32
	live  int // slots whose request is ours to hand back
	ended int // slots that only wait for the server

	wheel [wheelSize]int32 // first slot of each bucket: slot number + 1, 0 = none
	start time.Time
	tick  int64 // buckets up to this one have been looked at
}

// The wheel turns once in 25.6 s; a later deadline is met again each turn.
const (
	sweepInterval = 50 * time.Millisecond
	wheelSize     = 512
)

func newStreams(most int, now time.Time) *streams {
	n := 16
	for n < 2*most {
		n *= 2
	}
	return &streams{slots: make([]stream, n), mask: uint32(n - 1), start: now}
}

// get returns the open stream with an id, or nil. There are no slots any more
// once the connection is over, which a late cancel or grant may not know.
func (t *streams) get(id uint32) *stream {
	if at := id >> 1 & t.mask; at < uint32(len(t.slots)) {
		if s := &t.slots[at]; s.id == id && id != 0 {
			return s
		}
	}
	return nil
}

// free reports whether the slot of an id can be taken.
func (t *streams) free(id uint32) bool { return t.slots[id>>1&t.mask].id == 0 }

// open takes the slot of an id for r. It must be free.
func (t *streams) open(id uint32, r *Request) *stream {
	s := &t.slots[id>>1&t.mask]
	*s = stream{id: id, req: r}
	t.live++
	t.hang(s, r.until)
	return s
}

// finish hands the request out; the slot stays taken.
func (t *streams) finish(s *stream) *Request {
	r := s.req
	s.req, s.left = nil, nil
	t.live--
	t.ended++
	t.unhang(s)
	return r
}

// release frees a slot whose request has been handed out.
func (t *streams) release(s *stream) {
	s.id = 0
	t.ended--
}

// close is finish and release.
func (t *streams) close(s *stream) *Request {
	r := t.finish(s)
	t.release(s)
	return r
}

func (t *streams) hang(s *stream, until time.Time) {
	// Rounded up: nothing ends before its time.
	s.tick = max(int64((until.Sub(t.start)+sweepInterval-1)/sweepInterval), t.tick+1)
	bucket := &t.wheel[s.tick&(wheelSize-1)]
	s.prev, s.next = 0, *bucket
	me := int32(s.id>>1&t.mask) + 1
	if s.next != 0 {
		t.slots[s.next-1].prev = me
	}
	*bucket = me
}

func (t *streams) unhang(s *stream) {
	if s.prev != 0 {
		t.slots[s.prev-1].next = s.next
	} else {
		t.wheel[s.tick&(wheelSize-1)] = s.next
	}
	if s.next != 0 {
		t.slots[s.next-1].prev = s.prev
	}
}

// overdue turns the wheel to now and calls late for each stream whose deadline
// has passed; late must finish it.
func (t *streams) overdue(now time.Time, late func(*stream)) {
	to := int64(now.Sub(t.start) / sweepInterval)
	// After a long standstill one turn sees everything.
	for t.tick = max(t.tick, to-wheelSize); t.tick < to; {
		t.tick++
		for at := t.wheel[t.tick&(wheelSize-1)]; at != 0; {
			s := &t.slots[at-1]
			at = s.next
			if s.tick <= to {
				late(s)
			}
		}
	}
}
