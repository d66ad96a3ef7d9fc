package sim

import (
	"encoding/json"
	"net"
	"time"

	"golang.org/x/net/http2"
)

const (
	tooManyAlone   = "Maximum active streams violated for this endpoint."
	tooManyStreams = "exceeded_max_concurrent_streams"
	timedOut       = "session_timed_out"
	tooManyPings   = "too_many_pings"
)

// orderedAct is an act and who asked for it.
type orderedAct struct {
	act Act
	by  string
}

// warn answers 503 Shutdown to the last requests before a drain. For the very
// last one it returns the drain.
func (c *frameConn) warn(s *stream) *orderedAct {
	if !c.warning.Load() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.farewell == nil {
		return nil
	}
	s.req.shutdown = true
	if c.farewell.act.Shutdowns--; c.farewell.act.Shutdowns > 0 {
		return nil
	}
	last := c.farewell
	c.farewell = nil
	c.warning.Store(false)
	return last
}

// do does something to the connection. stream is the occasion, or 0.
func (c *frameConn) do(a *Act, by string, stream uint32) {
	c.mu.Lock()
	ended := c.failed
	switch {
	case ended:
	case a.Do == DoRefuse || a.Do == DoKill:
		c.note(a.Do, by, stream, "")
	default:
		c.act(a, by, stream)
	}
	c.mu.Unlock()
	switch {
	case ended:
		return
	case a.Do == DoRefuse:
		c.engine.refuse(c.memory.address, a, by)
	case a.Do == DoKill:
		if tcp, ok := c.socket.Conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // or it is no reset, only an end
		}
		c.fail()
	}
	c.signal()
}

// act is do for all that only changes the connection's state. It is called
// with mu held.
func (c *frameConn) act(a *Act, by string, stream uint32) {
	detail := a.Reason
	switch a.Do {
	case DoOneStream:
		c.memory.trusted.Store(false)
		c.alone = true
		c.grant()
	case DoSlowDown:
		if c.slow {
			return
		}
		c.slow = true
		c.grant()
		c.refuseAllButOldest(stream)
	case DoDisconnect:
		c.leave(http2.ErrCodeEnhanceYourCalm, c.last, c.reason(a, APNSTooManyRequests))
		c.abrupt = true
	case DoDrain:
		if a.Shutdowns > 0 {
			c.farewell = &orderedAct{*a, by}
			c.warning.Store(true)
			return
		}
		c.leave(http2.ErrCodeNo, c.keep(a.Unprocessed), c.reason(a, APNSShutdown))
	case DoAbandon:
		c.leave(http2.ErrCodeNo, c.keep(a.Unprocessed), c.reason(a, APNSShutdown))
		c.remove(func(uint32) bool { return true }, func(o owed) { c.drop(o, false) })
		c.abrupt = true
	case DoTooManyStreams:
		c.leave(http2.ErrCodeProtocol, c.last, tooManyStreams)
	case DoTimedOut:
		c.leave(http2.ErrCodeNo, c.last, timedOut)
	case DoTooManyPings:
		c.leave(http2.ErrCodeEnhanceYourCalm, c.last, tooManyPings)
	case DoMute, DoBlackHole:
		c.remove(func(uint32) bool { return true }, func(o owed) {
			c.open++
			c.silence(o.stream)
			c.drop(o, false)
		})
		c.mute, c.deaf = true, c.deaf || a.Do == DoBlackHole
		if a.Do == DoBlackHole {
			c.stall(a.For)
		}
	case DoDeaf:
		c.deaf = true
	case DoStall:
		c.stall(a.For)
	}
	c.note(a.Do, by, stream, detail)
}

// note writes an event. It is called with mu held.
func (c *frameConn) note(d Do, by string, stream uint32, detail string) {
	c.engine.policy.events.add(Event{
		Provider: c.provider.String(), Conn: c.memory.id, Stream: stream, Do: d.String(),
		Behaviour: doNames[d].behaviour, By: by, Detail: detail,
	})
}

// reason is the debug data of Apple's GOAWAY. Google's is plain text.
func (c *frameConn) reason(a *Act, usual Reply) string {
	text := a.Reason
	if text == "" && c.provider != FCM {
		text = usual.String()
	}
	if text == "" || c.provider == FCM {
		return text
	}
	quoted, _ := json.Marshal(text) // a string always encodes
	return `{"reason":` + string(quoted) + `}`
}

// leave says GOAWAY and takes back what was decided above its last stream; the
// writer closes the connection when the others have their answer. It is called
// with mu held, and may be called again with a lower last stream.
func (c *frameConn) leave(code http2.ErrCode, kept uint32, debug string) {
	if c.leaving {
		kept = min(kept, c.kept)
	}
	c.leaving, c.closing, c.kept = true, true, kept
	c.leaveBy = time.Now().Add(leaveTime)
	c.remove(func(id uint32) bool { return id > kept }, func(o owed) { c.drop(o, true) })
	c.out.frames = appendGoAway(c.out.frames, kept, code, debug)
}

// keep is the last stream of a GOAWAY that leaves some of the newest streams
// in flight above it. It is called with mu held.
func (c *frameConn) keep(unprocessed int) uint32 {
	ids := c.unanswered()
	for len(ids) > 0 && ids[0] < c.settled {
		ids = ids[1:] // a newer one counts as processed: so must this one
	}
	if n := min(unprocessed, len(ids)); n > 0 {
		return max(ids[len(ids)-n], 2) - 2
	}
	return c.last
}

// refuseAllButOldest resets what is in flight over a limit of one stream; the
// stream that is the occasion keeps its answer. It is called with mu held.
func (c *frameConn) refuseAllButOldest(occasion uint32) {
	ids := c.unanswered()
	if len(ids) < 2 {
		return
	}
	over := func(id uint32) bool { return id > ids[0] && id != occasion }
	c.remove(over, func(o owed) { c.drop(o, true) })
	for _, id := range ids[1:] {
		if over(id) {
			c.out.frames = appendReset(c.out.frames, id, http2.ErrCodeRefusedStream)
		}
	}
}

// stall stops the reader for a simulated time; 0 means until the end. It is
// called with mu held.
func (c *frameConn) stall(d time.Duration) {
	c.stallFor = time.Duration(1<<63 - 1)
	if d > 0 {
		c.stallFor = c.engine.policy.clock.passing(d)
	}
	c.stalled.Store(true)
}

// stand waits, in the reader, while the connection is stalled. It reports
// whether the connection goes on.
func (c *frameConn) stand() bool {
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
