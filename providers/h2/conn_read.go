package h2

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/net/http2"
)

// readBuffer holds an incomplete frame and one TLS record after it.
const readBuffer = 2*(maxFrame+frameHeader) + 6<<10

// Limits on frames that make no progress: each scores one, an answer takes off
// eight, and each sweep takes off scorePerSweep. No honest server comes near:
// for a thousand requests it sends two thousand WINDOW_UPDATEs at most.
const (
	maxScore      = 10_000
	scorePerSweep = 50
	maxBlock      = maxHeaderList // bytes of a header block over several frames
	maxControl    = 64 << 10      // bytes of our answers that the server does not read
)

var (
	errSilent = fmt.Errorf("%w: nothing received for too long", ErrConnectionLost)
	errStuck  = fmt.Errorf("%w: a write did not end", ErrConnectionLost)
)

// reader is what only the reading goroutine touches.
type reader struct {
	in    []byte
	dec   *decoder
	block []byte // of a header that goes on in CONTINUATION frames
	// The stream it belongs to, 0 = none, and whether its HEADERS ended it.
	blockOf  uint32
	blockEnd bool
	blocks   int      // CONTINUATION frames so far
	got      handback // settled, to be handed back outside of mu
	head     answerHead
}

// answerHead takes the wanted fields of a header block over.
type answerHead struct {
	r      *Request // nil = nobody wants them
	status int      // 0 = none, -1 = not a status
}

// field implements sink.
func (a *answerHead) field(want int, value []byte) {
	if want == wantStatus {
		if a.status != 0 || len(value) != 3 {
			a.status = -1
			return
		}
		for _, b := range value {
			if b < '0' || b > '9' {
				a.status = -1
				return
			}
			a.status = 10*a.status + int(b-'0')
		}
		return
	}
	if a.r == nil || len(a.r.Answer.Header[want]) > 0 {
		return // the first one counts
	}
	for _, b := range value {
		if b < 0x20 || b == 0x7f {
			return // it was no header of the provider's
		}
	}
	a.r.Answer.Header[want] = append(a.r.Answer.Header[want], value...)
}

// read works until the connection is over. All frames of a record are handled
// under one lock, and what they settle is handed back after it.
func (c *conn) read() {
	from, to := 0, 0
	for {
		n, err := c.nc.Read(c.in[to:])
		to += n
		var wake bool
		if n > 0 || err != nil {
			c.mu.Lock()
			if c.cause == nil && c.leaving == nil && n > 0 {
				var used int
				if used, err = c.frames(c.in[from:to], err); used > 0 {
					c.lastRead, c.probed = time.Now(), false
				}
				from += used
				c.pingEnded()
			}
			if err != nil {
				c.lost(err)
			}
			wake = c.nudge
			over := c.cause != nil || c.leaving != nil
			c.mu.Unlock()
			if wake {
				c.wakeUp()
			}
			c.got.flush()
			if over {
				return
			}
		}
		if from == to {
			from, to = 0, 0
		} else if len(c.in)-to < maxFrame+frameHeader {
			from, to = 0, copy(c.in, c.in[from:to])
		}
	}
}

// lost ends the connection because of err; mu is held.
func (c *conn) lost(err error) {
	if _, ok := errors.AsType[peerError](err); ok {
		c.leave(err)
	} else {
		c.fail(cmp.Or(c.mute, err)) // the end of file after a reset says less
	}
}

// frames handles all whole frames in b and returns their length; mu is held.
// A read error comes after what was read.
func (c *conn) frames(b []byte, readErr error) (used int, err error) {
	c.aheadToAnswer(b)
	for {
		f, n, err := cutFrame(b[used:])
		if err != nil {
			return used, err
		}
		if n == 0 {
			return used, readErr
		}
		used += n
		if err := c.frame(&f); err != nil {
			return used, err
		}
		if c.score > maxScore {
			return used, peerError{http2.ErrCodeEnhanceYourCalm, "too many frames without progress"}
		}
		if len(c.control) > maxControl {
			return used, peerError{http2.ErrCodeEnhanceYourCalm, "the server does not read our answers"}
		}
	}
}

// frame handles one frame; mu is held. An error ends the connection.
func (c *conn) frame(f *frame) error {
	if c.blockOf != 0 && (f.kind != http2.FrameContinuation || f.stream != c.blockOf) {
		return peerError{http2.ErrCodeProtocol, "header block interrupted"}
	}
	if !c.settled && (f.kind != http2.FrameSettings || f.flags.Has(http2.FlagSettingsAck)) {
		return peerError{http2.ErrCodeProtocol, "first frame is not SETTINGS"}
	}
	switch f.kind {
	case http2.FrameData:
		return c.dataFrame(f)
	case http2.FrameHeaders:
		return c.headersFrame(f)
	case http2.FrameContinuation:
		return c.continuationFrame(f)
	case http2.FrameRSTStream:
		return c.resetFrame(f)
	case http2.FrameSettings:
		return c.settingsFrame(f)
	case http2.FramePing:
		return c.pingFrame(f)
	case http2.FrameGoAway:
		return c.goAwayFrame(f)
	case http2.FrameWindowUpdate:
		return c.windowFrame(f)
	case http2.FramePushPromise:
		return peerError{http2.ErrCodeProtocol, "PUSH_PROMISE although push is disabled"}
	case http2.FramePriority:
		if len(f.payload) != 5 || f.stream == 0 {
			return peerError{http2.ErrCodeProtocol, "bad PRIORITY"}
		}
	}
	c.score++ // PRIORITY and unknown frames are ignored
	return nil
}

func (c *conn) settingsFrame(f *frame) error {
	if f.stream != 0 {
		return peerError{http2.ErrCodeProtocol, "SETTINGS on a stream"}
	}
	if f.flags.Has(http2.FlagSettingsAck) {
		if len(f.payload) != 0 {
			return peerError{http2.ErrCodeFrameSize, "bad acknowledgement of SETTINGS"}
		}
		c.score++
		return nil
	}
	if len(f.payload)%6 != 0 {
		return peerError{http2.ErrCodeFrameSize, "SETTINGS with a wrong length"}
	}
	initial := c.peerInitial
	for p := f.payload; len(p) > 0; p = p[6:] {
		id, v := http2.SettingID(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])
		c.score++
		if err := c.setting(id, v); err != nil {
			return err
		}
		if id == http2.SettingInitialWindowSize {
			initial = int64(v)
		}
	}
	if err := c.resize(initial); err != nil {
		return err
	}
	c.score++
	if !c.settled && c.pool.opt.Unauthenticated == nil {
		c.warm = true
	}
	c.settled, c.nudge = true, true
	// Applied already: both happen under mu, and the writer opens no stream
	// without it.
	c.control = appendFrameHeader(c.control, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	return nil
}

// setting applies one entry, except for the initial window. That is applied
// once per frame, because every stream has to be adjusted.
func (c *conn) setting(id http2.SettingID, v uint32) error {
	switch id {
	case http2.SettingHeaderTableSize:
		n := int(min(v, tableSize))
		if c.peerTable < 0 {
			c.peerTableLow = n
		}
		c.peerTable, c.peerTableLow = n, min(n, c.peerTableLow)
	case http2.SettingEnablePush:
		if v != 0 {
			return peerError{http2.ErrCodeProtocol, "server sets SETTINGS_ENABLE_PUSH"}
		}
	case http2.SettingMaxConcurrentStreams:
		c.peerStreams = v
	case http2.SettingInitialWindowSize:
		if v > maxWindow {
			return peerError{http2.ErrCodeFlowControl, "initial window too large"}
		}
	case http2.SettingMaxFrameSize:
		if v < 1<<14 || v > 1<<24-1 {
			return peerError{http2.ErrCodeProtocol, "frame size out of range"}
		}
		c.peerFrame = int(v)
	case http2.SettingMaxHeaderListSize:
		c.peerList = int(min(v, 1<<30))
	}
	return nil
}

// resize gives all streams another initial window.
func (c *conn) resize(initial int64) error {
	if initial == c.peerInitial {
		return nil
	}
	for i := range c.slots { // also with what a stream was granted before (RFC 9113, 6.9.2)
		if s := &c.slots[i]; s.req != nil && initial+s.credit > maxWindow {
			return peerError{http2.ErrCodeFlowControl, "initial window too large for an open stream"}
		}
	}
	c.peerInitial, c.unhold = initial, true
	return nil
}

func (c *conn) pingFrame(f *frame) error {
	if len(f.payload) != 8 {
		return peerError{http2.ErrCodeFrameSize, "PING with a wrong length"}
	}
	if f.stream != 0 {
		return peerError{http2.ErrCodeProtocol, "PING on a stream"}
	}
	data := binary.BigEndian.Uint64(f.payload)
	c.score++
	if f.flags.Has(http2.FlagPingAck) {
		c.ponged(data)
		return nil
	}
	c.control, c.nudge = appendPing(c.control, http2.FlagPingAck, data), true
	return nil
}

func (c *conn) windowFrame(f *frame) error {
	if len(f.payload) != 4 {
		return peerError{http2.ErrCodeFrameSize, "WINDOW_UPDATE with a wrong length"}
	}
	n := int64(binary.BigEndian.Uint32(f.payload) & maxWindow)
	c.score++
	if f.stream == 0 {
		if n == 0 {
			return peerError{http2.ErrCodeProtocol, "empty WINDOW_UPDATE"}
		}
		if c.sendWindow += n; c.sendWindow > maxWindow {
			return peerError{http2.ErrCodeFlowControl, "window too large"}
		}
		if len(c.held) > 0 {
			c.unhold, c.nudge = true, true
		}
		c.rouse()
		return nil
	}
	s := c.streams.get(f.stream)
	if s == nil {
		return c.noStream(f.stream)
	}
	if n == 0 || c.peerInitial+s.credit+n > maxWindow {
		c.reject(s, http2.ErrCodeFlowControl)
		return nil
	}
	s.credit += n
	if s.blocked {
		c.unhold, c.nudge = true, true
	}
	return nil
}

// noStream judges a frame for a stream that is not open: an old one's may
// still have been under way, one that never was is an error.
func (c *conn) noStream(id uint32) error {
	if id == 0 || id&1 == 0 || id >= c.nextID {
		return peerError{http2.ErrCodeProtocol, "frame on a stream that was never opened"}
	}
	c.score++
	return nil
}

func (c *conn) goAwayFrame(f *frame) error {
	if f.stream != 0 {
		return peerError{http2.ErrCodeProtocol, "GOAWAY on a stream"}
	}
	if len(f.payload) < 8 {
		return peerError{http2.ErrCodeFrameSize, "short GOAWAY"}
	}
	last := binary.BigEndian.Uint32(f.payload) & maxStream
	c.goAway = &GoAwayError{
		Code:   http2.ErrCode(binary.BigEndian.Uint32(f.payload[4:])),
		Reason: goAwayReason(f.payload[8:]),
		Words:  serversWords(f.payload[8:]),
	}
	c.score += 100
	c.retire()
	c.pool.goneAway(c.goAway.Code, f.payload[8:])
	for i := range c.slots {
		if s := &c.slots[i]; s.id > last && s.req != nil {
			c.recall(s)
			status := s.status
			c.drop(&c.got, c.streams.close(s), status, NotAccepted, c.goAway)
		}
	}
	c.rouse() // retired by an earlier one, it may be idle now
	return nil
}
