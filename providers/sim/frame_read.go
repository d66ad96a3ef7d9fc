package sim

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
}

func (c *frameConn) frame(f *frame) error {
	if c.blockOf != 0 && (f.kind != http2.FrameContinuation || f.stream != c.blockOf) {
		return errPeer(http2.ErrCodeProtocol)
	}
	switch f.kind {
	case http2.FrameHeaders:
		return c.headers(f)
	case http2.FrameContinuation:
		return c.continuation(f)
	case http2.FrameData:
		return c.data(f)
	case http2.FrameSettings:
		return c.settings(f)
	case http2.FramePing:
		if len(f.payload) != 8 {
			return errPeer(http2.ErrCodeFrameSize)
		}
		if !f.flags.Has(http2.FlagPingAck) && c.pinged() {
			return c.acknowledge(http2.FramePing, http2.FlagPingAck, f.payload)
		}
	case http2.FrameWindowUpdate:
		return c.windowUpdate(f)
	case http2.FrameRSTStream:
		if len(f.payload) != 4 || f.stream == 0 {
			return errPeer(http2.ErrCodeProtocol)
		}
		c.reset(f.stream)
	case http2.FramePushPromise:
		return errPeer(http2.ErrCodeProtocol)
	}
	return nil // PRIORITY, GOAWAY and unknown frames say nothing to us
}

// acknowledge answers PING and SETTINGS. A client that asks on and on and reads
// nothing is cut off.
func (c *frameConn) acknowledge(kind http2.FrameType, ack http2.Flags, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out.frames) > outLimit {
		return errPeer(http2.ErrCodeEnhanceYourCalm)
	}
	c.out.frames = appendFrame(c.out.frames, kind, ack, 0, payload)
	return nil
}

// unpad takes the padding off.
func unpad(f *frame) ([]byte, error) {
	p := f.payload
	if !f.flags.Has(http2.FlagDataPadded) { // the same bit in HEADERS
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, errPeer(http2.ErrCodeProtocol)
	}
	return p[1 : len(p)-int(p[0])], nil
}

func (c *frameConn) headers(f *frame) error {
	p, err := unpad(f)
	if err != nil {
		return err
	}
	if f.flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return errPeer(http2.ErrCodeFrameSize)
		}
		p = p[5:]
	}
	c.blockEnd = f.flags.Has(http2.FlagHeadersEndStream)
	if !f.flags.Has(http2.FlagHeadersEndHeaders) {
		c.block, c.blockOf = append(c.block[:0], p...), f.stream
		return nil
	}
	return c.request(f.stream, p)
}

func (c *frameConn) continuation(f *frame) error {
	if c.blockOf == 0 || len(c.block)+len(f.payload) > maxHeaderBlock {
		return errPeer(http2.ErrCodeEnhanceYourCalm)
	}
	c.block = append(c.block, f.payload...)
	if !f.flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	id := c.blockOf
	c.blockOf = 0
	return c.request(id, c.block)
}

// request starts a stream, or ends one with its trailers.
func (c *frameConn) request(id uint32, block []byte) error {
	if id%2 == 0 {
		return errPeer(http2.ErrCodeProtocol)
	}
	if s := c.streams[id]; s != nil { // trailers
		if !c.hpack.decode(block, &stream{}) || !c.blockEnd {
			return errPeer(http2.ErrCodeProtocol)
		}
		c.answer(s)
		return nil
	}
	s := c.take(id)
	if !c.hpack.decode(block, s) {
		return errPeer(http2.ErrCodeCompression)
	}
	c.mu.Lock()
	stale := id <= c.last
	refused := c.leaving // what comes after GOAWAY is not even refused
	if !stale && !c.leaving {
		previous := c.last
		c.last = id
		if refused = c.open >= c.limit+c.slack; refused {
			c.over(id, previous)
		} else {
			c.open++
		}
	}
	c.mu.Unlock()
	switch {
	case stale:
		return errPeer(http2.ErrCodeStreamClosed)
	case refused:
		c.give(s)
	case s.size > maxHeaderBlock:
		return errPeer(http2.ErrCodeEnhanceYourCalm)
	case c.blockEnd:
		c.answer(s)
	default:
		c.streams[id] = s
	}
	return nil
}

// field takes a field of the request's header.
func (s *stream) field(name, value string) {
	s.size += len(name) + len(value) + fieldOverhead
	switch name {
	case ":method":
		s.req.Method = value
	case ":path":
		s.req.Path = value
	case ":scheme", ":authority":
	default:
		s.req.Fields = append(s.req.Fields, Field{name, value})
	}
}

func (c *frameConn) take(id uint32) *stream {
	var s *stream
	if n := len(c.free); n > 0 {
		s, c.free = c.free[n-1], c.free[:n-1]
	} else {
		s = &stream{}
	}
	*s = stream{id: id, body: s.body[:0], text: s.text[:0], req: Request{Fields: s.req.Fields[:0], Conn: c.memory}}
	return s
}

// give takes a stream's memory back. Its text is wiped: whoever kept a part of
// a request shall not find another one's there.
func (c *frameConn) give(s *stream) {
	clear(s.text)
	c.free = append(c.free, s)
}

func (c *frameConn) data(f *frame) error {
	p, err := unpad(f)
	if err != nil {
		return err
	}
	if c.consumed += len(f.payload); c.consumed > connWindow/2 {
		c.mu.Lock()
		c.out.frames = appendWindowUpdate(c.out.frames, 0, uint32(c.consumed))
		c.mu.Unlock()
		c.consumed = 0
	}
	s := c.streams[f.stream]
	if s == nil {
		return nil // of a stream that was reset or refused
	}
	if s.body = append(s.body, p...); len(s.body) > bodyLimit {
		// No provider reads this to its end. Neither do we.
		c.answer(s)
		c.mu.Lock()
		c.out.frames = appendReset(c.out.frames, s.id, http2.ErrCodeNo)
		c.mu.Unlock()
		return nil
	}
	if f.flags.Has(http2.FlagDataEndStream) {
		c.answer(s)
	}
	return nil
}

func (c *frameConn) reset(id uint32) {
	s := c.streams[id]
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.updates, id)
	if i := c.waitingFor(id); i >= 0 {
		c.drop(c.waiting[i].owed, false)
		c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
		c.open--
		return
	}
	if s == nil {
		c.slack = min(c.slack+1, c.limit)
		return
	}
	delete(c.streams, id)
	c.give(s)
	c.open--
}

func (c *frameConn) settings(f *frame) error {
	if f.stream != 0 || len(f.payload)%6 != 0 {
		return errPeer(http2.ErrCodeFrameSize)
	}
	if f.flags.Has(http2.FlagSettingsAck) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unacked = max(0, c.unacked-1)
		return nil
	}
	for p := f.payload; len(p) > 0; p = p[6:] {
		value := binary.BigEndian.Uint32(p[2:])
		if http2.SettingID(binary.BigEndian.Uint16(p)) == http2.SettingInitialWindowSize {
			if value > maxWindow {
				return errPeer(http2.ErrCodeFlowControl)
			}
			c.mu.Lock()
			c.initial = int64(value)
			c.mu.Unlock()
		}
		// We use no dynamic table, push nothing, and send small frames.
	}
	return c.acknowledge(http2.FrameSettings, http2.FlagSettingsAck, nil)
}

func (c *frameConn) windowUpdate(f *frame) error {
	if len(f.payload) != 4 {
		return errPeer(http2.ErrCodeFrameSize)
	}
	n := int64(binary.BigEndian.Uint32(f.payload) & maxWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stream == 0 {
		if c.window += n; n == 0 || c.window > maxWindow {
			return errPeer(http2.ErrCodeFlowControl)
		}
	} else if c.streams[f.stream] != nil || c.waitingFor(f.stream) >= 0 {
		c.updates[f.stream] += n // others have their answer, or none to come
	}
	return nil
}
