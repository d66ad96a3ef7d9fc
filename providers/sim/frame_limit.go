package sim

import "golang.org/x/net/http2"

// learn notes, from a request's path, whose connection it is, and adjusts how
// many streams it may have to what the request came to. It is called with mu
// held.
func (c *frameConn) learn(path string) {
	if c.provider == Nobody {
		if p := providerOf(path); p == APNS || p == FCM {
			c.provider = p
		}
	}
	if c.alone && c.memory.trusted.Load() {
		c.alone = false
	}
	if c.slow && c.ans.Reply.Accepted() {
		c.slow = false
	}
	c.grant()
}

// grant tells the client how many streams it may have, if that has changed. It
// is called with mu held.
func (c *frameConn) grant() {
	if want := c.granted(); want != c.limit {
		c.limit = want
		c.unacked++
		c.out.frames = appendLimit(c.out.frames, want)
	}
}

func (c *frameConn) granted() int {
	streams := c.engine.policy.rules.Load().Streams
	switch {
	case c.alone || c.slow:
		return 1
	case c.provider == FCM && streams > 0:
		return streams
	}
	return c.engine.limit
}

// over deals with a stream above the limit, which came after previous. It is
// called with mu held.
func (c *frameConn) over(id, previous uint32) {
	streams := c.engine.policy.rules.Load().Streams
	switch {
	case c.alone:
		c.leave(http2.ErrCodeRefusedStream, previous, tooManyAlone)
		c.note(DoOneStream, byRule, id, tooManyAlone)
	case c.provider == FCM && streams > 0 && c.unacked == 0:
		c.leave(http2.ErrCodeProtocol, previous, tooManyStreams)
		c.note(DoTooManyStreams, byRule, id, tooManyStreams)
	default:
		c.out.frames = appendReset(c.out.frames, id, http2.ErrCodeRefusedStream)
		if c.slow {
			c.note(DoSlowDown, byRule, id, "refused")
		}
	}
}

// pinged counts a PING of the client, and reports whether it is to be answered.
func (c *frameConn) pinged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf {
		return false
	}
	f := c.engine.policy.fate
	if c.provider == FCM && !c.leaving && c.pings.over(f.rules.Load().Pings, f.clock.Now()) {
		c.act(&Act{Do: DoTooManyPings}, byRule, 0)
	}
	return true
}
