package engine

import "golang.org/x/net/http2"

type frame struct {
	kind    http2.FrameType
	flags   http2.Flags
	stream  uint32
	payload []byte
}

func (c *Conn) frame(f *frame) error {
	if c.blockOf != 0 && (f.kind != http2.FrameContinuation || f.stream != c.blockOf) {
		return broken("a frame within a header block")
	}
	if err := f.check(); err != nil {
		return err
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
		if !f.flags.Has(http2.FlagPingAck) && c.pinged() {
			return c.acknowledge(http2.FramePing, http2.FlagPingAck, f.payload)
		}
	case http2.FrameWindowUpdate:
		return c.windowUpdate(f)
	case http2.FrameRSTStream:
		return c.reset(f.stream)
	case http2.FramePriority:
		return c.priority(f)
	}
	return nil // GOAWAY and unknown frames say nothing to us
}

// unpad takes the padding off.
func unpad(f *frame) ([]byte, error) {
	p := f.payload
	if !f.flags.Has(http2.FlagDataPadded) { // the same bit in HEADERS
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, broken("padding longer than its frame")
	}
	return p[1 : len(p)-int(p[0])], nil
}

func (c *Conn) headers(f *frame) error {
	p, err := unpad(f)
	if err != nil {
		return err
	}
	c.blockSelf = false
	if f.flags.Has(http2.FlagHeadersPriority) {
		if len(p) < priorityLength {
			return errPeer{http2.ErrCodeFrameSize, "HEADERS without the priority it announces"}
		}
		c.blockSelf = dependsOn(p) == f.stream
		p = p[priorityLength:]
	}
	c.blockEnd = f.flags.Has(http2.FlagHeadersEndStream)
	if !f.flags.Has(http2.FlagHeadersEndHeaders) {
		c.block, c.blockOf = append(c.block[:0], p...), f.stream
		return nil
	}
	return c.header(f.stream, p)
}

func (c *Conn) continuation(f *frame) error {
	switch {
	case c.blockOf == 0:
		return broken("CONTINUATION of nothing")
	case len(c.block)+len(f.payload) > maxHeaderBlock:
		return errPeer{http2.ErrCodeEnhanceYourCalm, "header block too long"}
	}
	c.block = append(c.block, f.payload...)
	if !f.flags.Has(http2.FlagContinuationEndHeaders) {
		return nil
	}
	id := c.blockOf
	c.blockOf = 0
	return c.header(id, c.block)
}

// header takes a whole header block: of a new stream, or behind a body.
func (c *Conn) header(id uint32, block []byte) error {
	s, trailers := c.streams[id], true
	if s == nil {
		s, trailers = c.take(id), false
	}
	into := s
	if trailers {
		into = &stream{}
	}
	if !c.hpack.decode(block, into) {
		return errPeer{http2.ErrCodeCompression, "broken header block"}
	}
	if c.blockSelf {
		into.fault = dependsOnItself
	}
	if trailers {
		return c.trailers(s, into)
	}
	return c.request(s)
}

// request starts a stream.
func (c *Conn) request(s *stream) error {
	id := s.id
	if id%2 == 0 {
		return broken("a stream with an even number")
	}
	c.mu.Lock()
	stale, tooLong := id <= c.last, s.size > maxHeaderBlock
	refused := c.leaving // what comes after GOAWAY is not even refused
	if !stale && !c.leaving {
		previous := c.last
		c.last = id
		refused = c.open >= c.limit
		switch {
		case refused:
			c.session.Over(Held{c}, id, previous)
		case !tooLong: // it ends the connection, and waits for nothing
			c.open++
		}
	}
	c.mu.Unlock()
	switch {
	case stale:
		c.give(s)
		if c.state(id) == streamForgotten {
			return nil
		}
		return errPeer{http2.ErrCodeStreamClosed, "HEADERS on a closed stream"}
	case refused:
		c.give(s)
		c.forget(id)
	case tooLong:
		c.give(s)
		return errPeer{http2.ErrCodeEnhanceYourCalm, "header list too long"}
	case s.headFault() != "":
		c.streams[id] = s
		return c.breach(id, http2.ErrCodeProtocol, s.headFault())
	case c.blockEnd:
		return c.complete(s)
	default:
		c.streams[id] = s
	}
	return nil
}

// trailers ends a request.
func (c *Conn) trailers(s, fields *stream) error {
	why := fields.trailerFault()
	if !c.blockEnd {
		why = "a second header that does not end the request"
	}
	if why != "" {
		return c.breach(s.id, http2.ErrCodeProtocol, why)
	}
	return c.complete(s)
}

// complete takes the end of a request.
func (c *Conn) complete(s *stream) error {
	if why := s.bodyFault(true); why != "" {
		c.streams[s.id] = s
		return c.breach(s.id, http2.ErrCodeProtocol, why)
	}
	c.answer(s)
	return nil
}

func (c *Conn) take(id uint32) *stream {
	var s *stream
	if n := len(c.free); n > 0 {
		s, c.free = c.free[n-1], c.free[:n-1]
	} else {
		s = &stream{}
	}
	*s = stream{id: id, body: s.body[:0], text: s.text[:0], req: Request{Fields: s.req.Fields[:0]}}
	return s
}

// give takes a stream's memory back. Its text is wiped: whoever kept a part of
// a request shall not find another one's there.
func (c *Conn) give(s *stream) {
	clear(s.text)
	c.free = append(c.free, s)
}

func (c *Conn) data(f *frame) error {
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
		return c.strayData(f.stream)
	}
	s.body = append(s.body, p...)
	if why := s.bodyFault(false); why != "" {
		return c.breach(s.id, http2.ErrCodeProtocol, why)
	}
	if len(s.body) > bodyLimit {
		// No client of ours has so much to say: it is not read to its end.
		c.answer(s)
		c.forget(f.stream)
		return nil
	}
	if f.flags.Has(http2.FlagDataEndStream) {
		return c.complete(s)
	}
	return nil
}

func (c *Conn) strayData(id uint32) error {
	switch c.state(id) {
	case streamIdle:
		return broken("DATA on an idle stream")
	case streamForgotten:
		return nil
	}
	return c.breach(id, http2.ErrCodeStreamClosed, "DATA on a closed stream")
}

// reset takes back a request, or the wish for its answer.
func (c *Conn) reset(id uint32) error {
	s := c.streams[id]
	if s == nil && c.state(id) == streamIdle {
		return broken("RST_STREAM of an idle stream")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == nil {
		c.withdraw(id)
		return nil
	}
	delete(c.updates, id)
	delete(c.streams, id)
	c.give(s)
	c.open--
	return nil
}
