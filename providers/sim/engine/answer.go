package engine

import (
	"bytes"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// waitingAnswer is an answer that the client's windows do not let through, or
// that is due later than the wheel goes around.
type waitingAnswer struct {
	due        time.Time
	owed       owed
	head, body []byte // of the body, what has not been sent
}

// answer asks the session and schedules what it says.
func (c *Conn) answer(s *stream) {
	delete(c.streams, s.id)
	s.req.Body, s.req.Stream, s.req.At = s.body, s.id, c.arrived()
	ans := c.session.Answer(&s.req)
	c.mu.Lock()
	c.session.Adjust(Held{c})
	if ans.Never {
		c.silence(s.id)
	} else {
		c.schedule(s.id, ans)
	}
	c.mu.Unlock()
	c.session.Queued(s.id)
	c.give(s)
}

// schedule puts the answer where it waits for its time. It is called with mu
// held.
func (c *Conn) schedule(id uint32, ans *Answer) {
	o := owed{ans.Receipt, id}
	switch {
	case c.leaving && id > c.kept:
		c.open--
		c.drop(o, true)
		return
	case c.mute:
		c.silence(id)
		c.drop(o, false)
		return
	}
	to, later := &c.out, false
	fits := int64(len(ans.Body)) <= min(c.window, c.initial+c.updates[id])
	if fits && ans.Latency > 0 {
		if slot := c.wheel.slot(c.came, ans.Latency); slot != nil {
			to, later = slot, true
		} else {
			fits = false
		}
	}
	if !fits {
		c.waiting = append(c.waiting, waitingAnswer{
			due: c.came.Add(ans.Latency), owed: o, head: appendHeaders(nil, id, ans), body: bytes.Clone(ans.Body),
		})
		return
	}
	to.frames = appendHeaders(to.frames, id, ans)
	c.sendBody(&to.frames, id, ans.Body)
	to.owed = append(to.owed, o)
	if !later {
		c.open--
	}
}

// sendBody appends as much of a body as the client's windows allow, and
// returns the rest. It is called with mu held.
func (c *Conn) sendBody(to *[]byte, id uint32, body []byte) []byte {
	for len(body) > 0 {
		n := min(int64(len(body)), maxFrame, c.window, c.initial+c.updates[id])
		if n <= 0 {
			return body
		}
		c.window -= n
		flags := http2.Flags(0)
		if n == int64(len(body)) {
			flags = http2.FlagDataEndStream
		} else {
			c.updates[id] -= n
		}
		*to = appendFrame(*to, http2.FrameData, flags, id, body[:n])
		body = body[n:]
	}
	if len(c.updates) > 0 {
		delete(c.updates, id)
	}
	return nil
}

// waitingFor finds a stream's waiting answer, or -1. It is called with mu held.
func (c *Conn) waitingFor(id uint32) int {
	return slices.IndexFunc(c.waiting, func(w waitingAnswer) bool { return w.owed.stream == id })
}

// sendWaiting sends of the waiting answers what may go now, and returns how
// long it is until the next one's time; 0 when there is none. It is called
// with mu held.
func (c *Conn) sendWaiting(now time.Time) (next time.Duration) {
	kept := c.waiting[:0]
	for _, w := range c.waiting {
		if wait := w.due.Sub(now); wait > 0 {
			if next == 0 || wait < next {
				next = wait
			}
			kept = append(kept, w)
			continue
		}
		c.out.frames, w.head = append(c.out.frames, w.head...), nil
		if w.body = c.sendBody(&c.out.frames, w.owed.stream, w.body); len(w.body) > 0 {
			kept = append(kept, w)
			continue
		}
		c.out.owed = append(c.out.owed, w.owed)
		c.open--
	}
	clear(c.waiting[len(kept):])
	c.waiting = kept
	return next
}

// drop tells the session of an answer that does not get out. It is called with
// mu held.
func (c *Conn) drop(o owed, undone bool) {
	if !undone {
		c.settled = max(c.settled, o.stream)
	}
	c.session.Dropped(o.stream, o.receipt, undone)
}

// silence leaves a stream open for ever, without an answer. It is called with
// mu held.
func (c *Conn) silence(id uint32) {
	if c.silent == nil {
		c.silent = map[uint32]struct{}{}
	}
	c.silent[id] = struct{}{}
}

// withdraw closes a stream whose request was complete: its answer is dropped,
// unless it is due already. It is called with mu held.
func (c *Conn) withdraw(id uint32) {
	delete(c.updates, id)
	if _, ok := c.silent[id]; ok {
		delete(c.silent, id)
		c.open--
		return
	}
	if i := c.waitingFor(id); i >= 0 {
		c.drop(c.waiting[i].owed, false)
		c.waiting = slices.Delete(c.waiting, i, i+1)
		c.open--
	} else if o, ok := c.wheel.take(id); ok {
		c.drop(o, false)
		c.open--
	}
}

// remove takes the answers to some streams back, of those that have not been
// written. It is called with mu held.
func (c *Conn) remove(match func(stream uint32) bool, gone func(owed)) {
	c.out.remove(match, gone) // their streams are closed already
	counted := func(o owed) {
		c.open--
		gone(o)
	}
	c.wheel.remove(match, counted)
	c.waiting = slices.DeleteFunc(c.waiting, func(w waitingAnswer) bool {
		if !match(w.owed.stream) {
			return false
		}
		delete(c.updates, w.owed.stream)
		counted(w.owed)
		return true
	})
}

// settle tells the session, at the end, what was not answered any more.
func (c *Conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(func(uint32) bool { return true }, func(o owed) { c.drop(o, false) })
}
