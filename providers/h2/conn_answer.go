package h2

import (
	"encoding/binary"
	"time"

	"golang.org/x/net/http2"
)

// The frames of a stream. All methods are called by the reader, or where they
// say so the sweeper, with mu held.

func (c *conn) headersFrame(f *frame) error {
	p, err := f.unpad()
	if err != nil {
		return err
	}
	if f.flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return peerError{http2.ErrCodeProtocol, "HEADERS shorter than its priority"}
		}
		p = p[5:]
	}
	end := f.flags.Has(http2.FlagHeadersEndStream)
	if f.flags.Has(http2.FlagHeadersEndHeaders) {
		return c.headerBlock(f.stream, p, end)
	}
	c.block = append(c.block[:0], p...)
	c.blockOf, c.blockEnd, c.blocks = f.stream, end, 0
	if f.stream == 0 {
		return peerError{http2.ErrCodeProtocol, "HEADERS without a stream"}
	}
	return nil
}

func (c *conn) continuationFrame(f *frame) error {
	if c.blockOf == 0 {
		return peerError{http2.ErrCodeProtocol, "CONTINUATION without HEADERS"}
	}
	c.blocks++
	c.block = append(c.block, f.payload...)
	if len(c.block) > maxBlock || c.blocks > 16 {
		return peerError{http2.ErrCodeEnhanceYourCalm, "header block too long"}
	}
	if !f.flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	id := c.blockOf
	c.blockOf = 0
	return c.headerBlock(id, c.block, c.blockEnd)
}

// headerBlock takes a whole block: the answer's headers, an interim answer's,
// or trailers. It is always decoded, to keep the table in step.
func (c *conn) headerBlock(id uint32, block []byte, end bool) error {
	c.streamFrames = true
	s := c.streams.get(id)
	c.head = answerHead{}
	if s != nil && s.status == 0 && s.req != nil {
		c.head.r = s.req
		c.pool.resetHeader(&s.req.Answer)
		if s.req.call != nil {
			c.dec.every = s.req.call.field
		}
	}
	err := c.dec.decode(block, &c.head)
	c.head.r, c.dec.every = nil, nil
	switch {
	case err == errLongBlock:
		return peerError{http2.ErrCodeEnhanceYourCalm, "header list too long"}
	case err != nil:
		return peerError{http2.ErrCodeCompression, "header block does not decode"}
	case s == nil:
		return c.noStream(id)
	case s.req == nil:
		c.score++
		if end {
			c.released(s)
		}
		return nil
	}
	status := c.head.status
	switch {
	case s.status != 0: // trailers
		if !end || status != 0 {
			c.reject(s, http2.ErrCodeProtocol)
			return nil
		}
	case status >= 100 && status < 200 && !end && status != 101:
		c.score++
		if s.req.call != nil {
			s.req.call.interim()
		}
		return nil // more will come
	case status < 200:
		c.reject(s, http2.ErrCodeProtocol)
		return nil
	default:
		s.status = status
		if s.req.call != nil {
			s.req.call.answered(status, end)
		}
	}
	if end {
		c.complete(s)
	}
	return nil
}

func (c *conn) dataFrame(f *frame) error {
	n := len(f.payload)
	p, err := f.unpad()
	if err != nil {
		return err
	}
	c.streamFrames = true
	// It never runs out: the remaining half is many frames.
	if c.receiveWindow -= n; c.receiveWindow < connWindow/2 {
		c.control = appendWindowUpdate(c.control, 0, uint32(connWindow-c.receiveWindow))
		c.receiveWindow, c.nudge = connWindow, true
	}
	s := c.streams.get(f.stream)
	if s == nil {
		return c.noStream(f.stream)
	}
	end := f.flags.Has(http2.FlagDataEndStream)
	if len(p) == 0 && !end || s.req == nil {
		c.score++
	}
	if s.taken += n; s.taken > c.pool.streamWindow() {
		return peerError{http2.ErrCodeFlowControl, "DATA exceeds a stream's window"}
	}
	switch {
	case s.req == nil:
		if end {
			c.released(s)
		}
		return nil
	case s.status == 0:
		c.reject(s, http2.ErrCodeProtocol)
		return nil
	}
	if s.req.call != nil {
		s.req.call.data(p, n-len(p))
		if end {
			c.complete(s)
		}
		return nil
	}
	a := &s.req.Answer
	room := c.pool.opt.MaxAnswer - len(a.Body)
	a.Body = append(a.Body, p[:min(len(p), room)]...)
	switch {
	case end:
		c.complete(s)
	case len(p) > room:
		// We have the answer and want no more of it.
		c.answer(s, http2.ErrCodeCancel)
	}
	return nil
}

// complete is called when the server has finished the stream. What was not yet
// sent to it is not sent any more.
func (c *conn) complete(s *stream) {
	if len(s.left) > 0 {
		c.answer(s, http2.ErrCodeNo) // it did not wait for all of the body
		return
	}
	c.recall(s)
	r, status := c.streams.close(s), s.status
	c.settleAnswer(r, status)
}

// answer hands back an answer and ends our side of its stream early.
func (c *conn) answer(s *stream, code http2.ErrCode) {
	status := s.status
	r, _ := c.abandon(s, code)
	c.settleAnswer(r, status)
}

func (c *conn) settleAnswer(r *Request, status int) {
	r.Outcome, r.Err = Answered, nil
	r.Answer.Status = status
	c.isAnswered()
	if known := !c.pool.opt.unknown(&r.Answer); known != c.warm {
		c.warm, c.nudge = known, true
	}
	c.score = max(c.score-8, 0)
	c.rouse()
	c.got.add(r)
}

// reject ends a stream on which the server broke the rules.
func (c *conn) reject(s *stream, code http2.ErrCode) {
	c.score += 10
	if s.req == nil {
		return // it is ended already
	}
	status := s.status
	r, _ := c.abandon(s, code)
	c.drop(&c.got, r, status, Ambiguous, &ResetError{code})
}

// abandon takes the request out of a stream and resets it. The slot stays taken
// until a PING that follows the reset is answered: only then has the server
// certainly freed it. A stream that was never written is not reset: the server
// does not know it. The sweeper calls abandon too.
func (c *conn) abandon(s *stream, code http2.ErrCode) (r *Request, unwritten bool) {
	if c.recall(s) {
		return c.streams.close(s), true
	}
	r = c.streams.finish(s)
	c.control, c.nudge = appendReset(c.control, s.id, code), true
	s.ping = c.pings + 1 // the next one, which pingEnded sends
	return r, false
}

// pingEnded sends the PING that ended streams wait for, after whatever may have
// ended some: one at a time, and only when the server has sent something of a
// stream since, because some count PINGs.
func (c *conn) pingEnded() {
	if !c.pinging && c.streamFrames && c.ended > 0 {
		c.pinging, c.streamFrames = true, false
		c.sendPing()
	}
}

func (c *conn) sendPing() {
	c.pings++
	c.control, c.nudge = appendPing(c.control, 0, c.pings), true
}

// ponged frees the slots of streams that were reset before a PING.
func (c *conn) ponged(number uint64) {
	if number > c.pings || number == 0 {
		return // not ours
	}
	if number == c.pings {
		c.pinging = false
	}
	for i := range c.slots {
		if s := &c.slots[i]; s.id != 0 && s.req == nil && s.ping <= number {
			c.streams.release(s)
		}
	}
	c.rouse()
}

// released is called when the server has finished a stream that we had reset.
func (c *conn) released(s *stream) {
	c.streams.release(s)
	c.rouse()
}

func (c *conn) resetFrame(f *frame) error {
	if len(f.payload) != 4 {
		return peerError{http2.ErrCodeFrameSize, "RST_STREAM with a wrong length"}
	}
	c.score++
	s := c.streams.get(f.stream)
	if s == nil {
		return c.noStream(f.stream)
	}
	if s.req == nil {
		c.released(s)
		return nil
	}
	code := http2.ErrCode(binary.BigEndian.Uint32(f.payload))
	outcome := Ambiguous
	switch code {
	case http2.ErrCodeRefusedStream:
		outcome = NotAccepted
	case http2.ErrCodeEnhanceYourCalm:
		c.pool.Calm()
	}
	c.recall(s) // before it goes elsewhere
	status := s.status
	c.drop(&c.got, c.streams.close(s), status, outcome, &ResetError{code})
	c.rouse()
	return nil
}

// sweep handles what depends on time: deadlines, silence, and a write that does
// not end. The sweeper calls it; h is the sweeper's, more says that the pool
// allows more than before.
func (c *conn) sweep(now time.Time, more bool, h *handback) {
	c.mu.Lock()
	if c.cause != nil {
		c.mu.Unlock()
		return
	}
	c.score = max(c.score-scorePerSweep, 0)
	c.streams.overdue(now, func(s *stream) { c.giveUp(s, now, ErrDeadline, h) })
	c.leaveStale(now, h)
	c.pingEnded()
	c.nudge = c.nudge || more
	o := &c.pool.opt
	interval := c.pool.pings.interval(o)
	// One sweep early, so that the sum is kept and not exceeded.
	silence := now.Sub(c.lastRead) + sweepInterval
	switch {
	case silence >= interval+o.PingTimeout:
		c.fail(errSilent)
	case !c.writingSince.IsZero() && (now.Sub(c.writingSince) >= o.PingInterval || c.leaving != nil && now.Sub(c.writingSince) >= time.Second):
		c.fail(errStuck)
	case silence >= interval && !c.probed && c.leaving == nil:
		c.probed = true
		c.sendPing()
	}
	wake := c.nudge
	c.mu.Unlock()
	if wake {
		c.wakeUp()
	}
}
