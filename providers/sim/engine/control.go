package engine

import (
	"encoding/binary"
	"slices"

	"golang.org/x/net/http2"
)

// What RFC 9113 asks of frames besides requests, and what becomes of a client
// that does otherwise.

const (
	priorityLength  = 5
	forgottenKept   = 1024
	maxFrameAllowed = 1<<24 - 1
	dependsOnItself = "a stream that depends on itself"
)

// broken ends a connection whose client does not keep to the protocol.
func broken(why string) error { return errPeer{http2.ErrCodeProtocol, why} }

// check refuses what is wrong with a frame whatever came before it: its length,
// and whether it belongs to a stream or to the connection.
func (f *frame) check() error {
	n, fits, ofStream := len(f.payload), true, true
	switch f.kind {
	case http2.FrameData, http2.FrameHeaders, http2.FrameContinuation, http2.FramePriority:
	case http2.FrameRSTStream:
		fits = n == 4
	case http2.FrameSettings:
		fits, ofStream = n%6 == 0 && (n == 0 || !f.flags.Has(http2.FlagSettingsAck)), false
	case http2.FramePing:
		fits, ofStream = n == 8, false
	case http2.FrameGoAway:
		fits, ofStream = n >= 8, false
	case http2.FrameWindowUpdate:
		fits, ofStream = n == 4, f.stream != 0 // of either
	case http2.FramePushPromise:
		return broken("clients promise nothing")
	default:
		return nil
	}
	switch {
	case ofStream != (f.stream != 0):
		return broken(f.kind.String() + " with the wrong stream")
	case !fits:
		return errPeer{http2.ErrCodeFrameSize, f.kind.String() + " of a wrong length"}
	}
	return nil
}

// streamState is that of a stream which takes no part of a request.
type streamState uint8

const (
	streamClosed    streamState = iota // at least for the client: its request was complete, or reset
	streamIdle                         // never used
	streamForgotten                    // closed by us before its request was complete: the rest is ignored
)

func (c *Conn) state(id uint32) streamState {
	c.mu.Lock()
	late := c.leaving && id > c.kept
	c.mu.Unlock()
	switch {
	case late || slices.Contains(c.forgotten, id):
		return streamForgotten
	case id%2 == 0 || id > c.last:
		return streamIdle
	}
	return streamClosed
}

// forget makes what still comes of a request ignored.
func (c *Conn) forget(id uint32) {
	if len(c.forgotten) < forgottenKept {
		c.forgotten = append(c.forgotten, id)
	} else {
		c.forgotten[c.forgets%forgottenKept] = id
	}
	c.forgets++
}

// breach resets a stream because of what the client did with it. A request
// that is not complete counts as never received; of one that has been decided
// the answer is dropped.
func (c *Conn) breach(id uint32, code http2.ErrCode, why string) error {
	s := c.streams[id]
	if s != nil {
		delete(c.streams, id)
		c.give(s)
		c.forget(id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s != nil {
		c.open--
	} else {
		c.withdraw(id)
	}
	delete(c.updates, id)
	if err := c.reading(); err != nil {
		return err
	}
	c.out.frames = appendReset(c.out.frames, id, code)
	c.session.Complained(id, errPeer{code, why}.Error())
	return nil
}

// reading ends the connection of a client that makes us write on and on, and
// reads nothing. It is called with mu held.
func (c *Conn) reading() error {
	if len(c.out.frames) > outLimit {
		return errPeer{http2.ErrCodeEnhanceYourCalm, "nothing is read"}
	}
	return nil
}

// pinged reports whether a PING of the client is to be answered.
func (c *Conn) pinged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deaf {
		return false
	}
	c.session.Pinged(Held{c})
	return true
}

// acknowledge answers PING and SETTINGS.
func (c *Conn) acknowledge(kind http2.FrameType, ack http2.Flags, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reading(); err != nil {
		return err
	}
	c.out.frames = appendFrame(c.out.frames, kind, ack, 0, payload)
	return nil
}

// dependsOn reads the stream that a priority names.
func dependsOn(p []byte) uint32 { return binary.BigEndian.Uint32(p) & maxWindow }

// priority is not followed, only checked.
func (c *Conn) priority(f *frame) error {
	code, why := http2.ErrCodeProtocol, dependsOnItself
	switch {
	case len(f.payload) != priorityLength:
		code, why = http2.ErrCodeFrameSize, "PRIORITY of a wrong length"
	case dependsOn(f.payload) != f.stream:
		return nil
	}
	if c.state(f.stream) == streamIdle {
		return errPeer{code, why} // what is idle cannot be reset
	}
	return c.breach(f.stream, code, why)
}

func (c *Conn) settings(f *frame) error {
	if f.flags.Has(http2.FlagSettingsAck) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unacked = max(0, c.unacked-1)
		return nil
	}
	for p := f.payload; len(p) > 0; p = p[6:] {
		value := binary.BigEndian.Uint32(p[2:])
		switch http2.SettingID(binary.BigEndian.Uint16(p)) {
		case http2.SettingEnablePush:
			if value > 1 {
				return broken("ENABLE_PUSH that is neither 0 nor 1")
			}
		case http2.SettingMaxFrameSize:
			if value < maxFrame || value > maxFrameAllowed {
				return broken("MAX_FRAME_SIZE out of range")
			}
		case http2.SettingInitialWindowSize:
			if err := c.setInitial(value); err != nil {
				return err
			}
		}
		// We use no dynamic table, push nothing, and send small frames.
	}
	return c.acknowledge(http2.FrameSettings, http2.FlagSettingsAck, nil)
}

func (c *Conn) setInitial(value uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.initial = int64(value)
	over := c.initial > maxWindow
	for _, more := range c.updates {
		over = over || c.initial+more > maxWindow
	}
	if over {
		return errPeer{http2.ErrCodeFlowControl, "INITIAL_WINDOW_SIZE overflows a window"}
	}
	return nil
}

func (c *Conn) windowUpdate(f *frame) error {
	n := int64(binary.BigEndian.Uint32(f.payload) & maxWindow)
	if f.stream == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.window += n; c.window > maxWindow {
			return errPeer{http2.ErrCodeFlowControl, "the connection's window overflows"}
		}
		if n == 0 {
			return broken("WINDOW_UPDATE by nothing")
		}
		return nil
	}
	open := c.streams[f.stream] != nil
	if !open && c.state(f.stream) == streamIdle {
		return broken("WINDOW_UPDATE of an idle stream")
	}
	if n == 0 {
		return c.breach(f.stream, http2.ErrCodeProtocol, "WINDOW_UPDATE by nothing")
	}
	if c.widen(f.stream, n, open) {
		return c.breach(f.stream, http2.ErrCodeFlowControl, "the stream's window overflows")
	}
	return nil
}

// widen adds to the window of a stream, and reports whether it overflows. What
// has its answer, or none to come, needs no window.
func (c *Conn) widen(id uint32, n int64, open bool) (over bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !open && c.waitingFor(id) < 0 {
		return false
	}
	c.updates[id] += n
	return c.initial+c.updates[id] > maxWindow
}
