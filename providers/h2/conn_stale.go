package h2

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// Requests that must no longer be written, because their lease or their time is
// over, are looked for three times: before encoding, right before writing if
// the process was suspended in between, and while flow control holds back the
// rest of a body. The server knows nothing of what is encoded but not written:
// such a write can be taken back, together with its streams.

// pending is the write in conn.out. Its stage is moved on by the writer, or
// with conn.mu held; the rest is guarded by conn.mu.
type pending struct {
	stage   atomic.Int32
	from    uint32    // streams from this id on begin in it
	fresh   []started // those streams, in order
	resumed []resumed // bodies that continue in it
	spent   int64     // of the connection's window
}

// The stages of a write.
const (
	encoded  int32 = iota // nothing of it is written yet
	recalled              // nor will be, except for control frames: a stream in it was ended
	written               // or being written
)

// started is a stream whose HEADERS begin at a place in out.
type started struct {
	id uint32
	at int
}

// resumed is a stream of whose body n bytes are in out.
type resumed struct {
	id uint32
	n  int
}

// begin starts a new write; ids from this one on are free.
func (p *pending) begin(from uint32) {
	p.stage.Store(encoded)
	p.from, p.spent = from, 0
	p.fresh, p.resumed = p.fresh[:0], p.resumed[:0]
}

// recall makes the writer take back what is not written yet if s, which is
// being ended, may be part of it. It reports whether the server knows nothing
// about s and never will; mu is held.
func (p *pending) recall(s *stream) bool {
	fresh := s.id >= p.from
	if !fresh && len(p.resumed) == 0 {
		return false
	}
	return (p.stage.Load() == recalled || p.stage.CompareAndSwap(encoded, recalled)) && fresh
}

// giveUp ends a stream with the error why, before the server has answered. One
// that was never written is handed back as such, whatever the reason; mu is
// held.
func (c *conn) giveUp(s *stream, now time.Time, why error, h *handback) {
	status := s.status
	r, unwritten := c.abandon(s, http2.ErrCodeCancel)
	if unwritten && status == 0 {
		outcome, stale, is := c.pool.stale(r, now)
		if !is {
			outcome, stale = NotAccepted, why
		}
		r.settle(outcome, stale)
		h.add(r)
	} else {
		c.drop(h, r, status, Ambiguous, why)
	}
}

// leaveStale gives up streams whose body is held by flow control and must no
// longer be completed, because another worker may have begun to send the same;
// mu is held.
func (c *conn) leaveStale(now time.Time, h *handback) {
	for _, id := range c.held {
		s := c.streams.get(id)
		if s == nil || s.req == nil || len(s.left) == 0 {
			continue
		}
		if outcome, why, stale := c.pool.stale(s.req, now); stale {
			if outcome == ExpiredUnsent {
				why = ErrExpired
			}
			c.giveUp(s, now, why, h)
		}
	}
}

// standstill is how long after its encoding a request is checked again before
// it is written. Only a suspended process, a migrated virtual machine or a very
// long garbage collection takes longer.
const standstill = time.Millisecond

// withdraw is the last check before a write. If a part of what was encoded has
// become stale since, or was ended by someone else, it takes back everything
// but control frames.
func (c *conn) withdraw(now time.Time) {
	if now.Sub(c.filled) < standstill && c.stage.CompareAndSwap(encoded, written) {
		return
	}
	c.mu.Lock()
	if c.stage.Load() == recalled || c.anyStale(now) {
		c.takeBack(now)
	}
	c.stage.Store(written)
	c.mu.Unlock()
	c.back.flush()
}

// anyStale reports whether a request in out must no longer be written. None of
// the streams has ended, or the write would have been recalled; mu is held.
func (c *conn) anyStale(now time.Time) bool {
	stale := func(id uint32) bool {
		_, _, stale := c.pool.stale(c.streams.get(id).req, now)
		return stale
	}
	return slices.ContainsFunc(c.fresh, func(f started) bool { return stale(f.id) }) ||
		slices.ContainsFunc(c.resumed, func(b resumed) bool { return stale(b.id) })
}

// takeBack undoes what was encoded. Bodies are held again; fresh streams never
// existed, and their requests, unless stale, are the first of the next write.
// Their ids are skipped. The connection stays usable: the header table, which
// is ahead of the server's, is emptied; mu is held.
func (c *conn) takeBack(now time.Time) {
	c.out = c.out[:c.controls]
	c.sendWindow += c.spent
	for _, b := range c.resumed {
		s := c.streams.get(b.id)
		if s == nil || s.req == nil {
			continue
		}
		s.left = s.req.Body[len(s.req.Body)-len(s.left)-b.n:]
		s.credit += int64(b.n)
		if !s.blocked {
			s.blocked = true
			c.hold(s.id)
		}
		c.unhold = true // the next fill checks whether it is stale
	}
	for _, f := range slices.Backward(c.fresh) { // the last one back is the first to go
		if s := c.streams.get(f.id); s != nil && s.req != nil {
			c.unstart(s, now)
		}
	}
	if len(c.fresh) > 0 {
		c.enc.forget()
	}
	c.begin(c.nextID)
}

// unstart undoes start; mu is held.
func (c *conn) unstart(s *stream, now time.Time) {
	status, r := s.status, c.streams.close(s)
	r.tries--
	outcome, why, stale := c.pool.stale(r, now)
	switch {
	case status != 0: // by a server that answers a request it never got
		c.drop(&c.back, r, status, Ambiguous, ErrConnectionLost)
		return
	case stale:
	case c.pool.queue.putBack(r):
		return
	default:
		outcome, why = NotAccepted, ErrClosed
	}
	r.settle(outcome, why)
	c.back.add(r)
}
