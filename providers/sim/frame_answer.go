package sim

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

// answer asks the policy and schedules what it says; then it does to the
// connection what the policy or a rule wants done.
func (c *frameConn) answer(s *stream) {
	delete(c.streams, s.id)
	s.req.Body, s.req.Stream, s.req.now = s.body, s.id, c.simulated()
	last := c.warn(s)
	c.engine.policy.Answer(&s.req, &c.ans)
	act, by := c.ans.act, c.ans.by
	c.mu.Lock()
	c.learn(s.req.Path)
	if act == nil || act.Do != DoHang {
		c.schedule(s.id, c.came)
	} else {
		c.silence(s.id)
	}
	c.mu.Unlock()
	if act != nil && act.Do >= DoOneStream {
		c.do(act, by, s.id)
	}
	if last != nil {
		c.do(&last.act, last.by, 0)
	}
	c.give(s)
}

// schedule puts the answer where it waits for its time. It is called with mu
// held.
func (c *frameConn) schedule(id uint32, now time.Time) {
	o := owed{c.ans.decided, id}
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
	fits := int64(len(c.ans.Body)) <= min(c.window, c.initial+c.updates[id])
	if fits && c.ans.Latency > 0 {
		if slot := c.wheel.slot(now, c.ans.Latency); slot != nil {
			to, later = slot, true
		} else {
			fits = false
		}
	}
	if !fits {
		c.waiting = append(c.waiting, waitingAnswer{
			due: now.Add(c.ans.Latency), owed: o, head: appendHeaders(nil, id, &c.ans), body: bytes.Clone(c.ans.Body),
		})
		return
	}
	to.frames = appendHeaders(to.frames, id, &c.ans)
	c.sendBody(&to.frames, id, c.ans.Body)
	to.owed = append(to.owed, o)
	if !later {
		c.open--
	}
}

// sendBody appends as much of a body as the client's windows allow, and
// returns the rest. It is called with mu held.
func (c *frameConn) sendBody(to *[]byte, id uint32, body []byte) []byte {
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
func (c *frameConn) waitingFor(id uint32) int {
	return slices.IndexFunc(c.waiting, func(w waitingAnswer) bool { return w.owed.stream == id })
}

// sendWaiting sends of the waiting answers what may go now, and returns how
// long it is until the next one's time; 0 when there is none. It is called
// with mu held.
func (c *frameConn) sendWaiting(now time.Time) (next time.Duration) {
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

// drop tells the ledger of an answer that does not get out. It is called with
// mu held.
func (c *frameConn) drop(o owed, undone bool) {
	if !undone {
		c.settled = max(c.settled, o.stream)
	}
	c.engine.policy.dropped(c.memory, o.stream, o.decision, undone)
}

// silence leaves a stream open for ever, without an answer. It is called with
// mu held.
func (c *frameConn) silence(id uint32) {
	if c.silent == nil {
		c.silent = map[uint32]struct{}{}
	}
	c.silent[id] = struct{}{}
}

// withdraw closes a stream whose request was complete: its answer is dropped,
// unless it is due already. It is called with mu held.
func (c *frameConn) withdraw(id uint32) {
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
func (c *frameConn) remove(match func(stream uint32) bool, gone func(owed)) {
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

// unanswered lists the streams with an answer that has not been written, in
// ascending order. It is called with mu held.
func (c *frameConn) unanswered() []uint32 {
	var ids []uint32
	note := func(all []owed) {
		for _, o := range all {
			ids = append(ids, o.stream)
		}
	}
	note(c.out.owed)
	for tick := c.wheel.next; tick < c.wheel.until; tick++ {
		note(c.wheel.slots[tick%wheelTicks].owed)
	}
	for _, w := range c.waiting {
		ids = append(ids, w.owed.stream)
	}
	slices.Sort(ids)
	return ids
}

// settle tells the ledger, at the end, what was not answered any more.
func (c *frameConn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(func(uint32) bool { return true }, func(o owed) { c.drop(o, false) })
}
