package engine

import (
	"math"
	"net"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// Forever is longer than any connection lives.
const Forever time.Duration = math.MaxInt64

// Hold calls f while nothing else changes the connection's state. f must not
// wait, and must not hold a connection itself. What f queues goes out when the
// connection's writer looks next: see Wake.
func (c *Conn) Hold(f func(Held)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(Held{c})
}

// Wake has the connection's writer look what there is to do.
func (c *Conn) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Kill resets the connection.
func (c *Conn) Kill() {
	reset(c.socket.Conn)
	c.fail()
}

// reset closes a connection so that its client sees no end, but a reset.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // or it is no reset, only an end
	}
	_ = c.Close() // its client sees it
}

// Held is a connection that is held: what can be done to it then. It is valid
// only within the call that it was given to.
type Held struct{ c *Conn }

// Ended reports whether the connection is at its end.
func (h Held) Ended() bool { return h.c.failed }

// Leaving reports whether a GOAWAY was sent.
func (h Held) Leaving() bool { return h.c.leaving }

// Last is the newest stream of the client.
func (h Held) Last() uint32 { return h.c.last }

// Acknowledged reports whether the client has acknowledged all SETTINGS.
func (h Held) Acknowledged() bool { return h.c.unacked == 0 }

// Grant tells the client how many streams it may have, if that has changed.
func (h Held) Grant(streams int) {
	c := h.c
	if streams != c.limit {
		c.limit = streams
		c.unacked++
		c.out.frames = appendLimit(c.out.frames, streams)
	}
}

// Refuse resets a stream that is not processed.
func (h Held) Refuse(stream uint32) {
	h.c.out.frames = appendReset(h.c.out.frames, stream, http2.ErrCodeRefusedStream)
}

// RefuseAllButOldest resets what is in flight over a limit of one stream; the
// stream that is the occasion keeps its answer.
func (h Held) RefuseAllButOldest(occasion uint32) {
	c := h.c
	ids := c.unanswered()
	if len(ids) < 2 {
		return
	}
	over := func(id uint32) bool { return id > ids[0] && id != occasion }
	c.remove(over, func(o owed) { c.drop(o, true) })
	for _, id := range ids[1:] {
		if over(id) {
			h.Refuse(id)
		}
	}
}

// GoAway is what a connection is ended with.
type GoAway struct {
	Code  Code
	Last  uint32 // the last stream that counts as processed
	Debug string
	// Abrupt ends the connection without the answers that are not due yet;
	// otherwise those up to Last get out first.
	Abrupt bool
}

// GoAway says GOAWAY and takes back what was decided above its last stream; the
// writer closes the connection when the others have their answer. It may be
// called again with a lower last stream.
func (h Held) GoAway(g GoAway) {
	c := h.c
	kept := g.Last
	if c.leaving {
		kept = min(kept, c.kept)
	}
	c.leaving, c.closing, c.kept, c.abrupt = true, true, kept, c.abrupt || g.Abrupt
	c.leaveBy = time.Now().Add(leaveTime)
	c.remove(func(id uint32) bool { return id > kept }, func(o owed) { c.drop(o, true) })
	c.out.frames = appendGoAway(c.out.frames, kept, g.Code, g.Debug)
}

// LastBut is the last stream of a GOAWAY that leaves some of the newest streams
// in flight above it.
func (h Held) LastBut(unprocessed int) uint32 {
	c := h.c
	ids := c.unanswered()
	for len(ids) > 0 && ids[0] < c.settled {
		ids = ids[1:] // a newer one counts as processed: so must this one
	}
	if n := min(unprocessed, len(ids)); n > 0 {
		return max(ids[len(ids)-n], 2) - 2
	}
	return c.last
}

// DropAll drops all answers that have not been written.
func (h Held) DropAll() {
	h.c.remove(func(uint32) bool { return true }, func(o owed) { h.c.drop(o, false) })
}

// Mute drops all answers that have not been written, and lets none out any
// more: their streams stay open. PING and SETTINGS are acknowledged as before.
func (h Held) Mute() {
	c := h.c
	c.remove(func(uint32) bool { return true }, func(o owed) {
		c.open++
		c.silence(o.stream)
		c.drop(o, false)
	})
	c.mute = true
}

// Deafen leaves every PING unanswered from now on.
func (h Held) Deafen() { h.c.deaf = true }

// Stall has nothing read for a time.
func (h Held) Stall(d time.Duration) {
	h.c.stallFor = d
	h.c.stalled.Store(true)
}

// stand waits, in the reader, while the connection is stalled. It reports
// whether the connection goes on.
func (c *Conn) stand() bool {
	c.mu.Lock()
	d, failed := c.stallFor, c.failed
	c.mu.Unlock()
	if failed {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		c.stalled.Store(false)
		return true
	case <-c.ended:
		return false
	}
}

// unanswered lists the streams with an answer that has not been written, in
// ascending order. It is called with mu held.
func (c *Conn) unanswered() []uint32 {
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
