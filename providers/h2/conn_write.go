package h2

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"golang.org/x/net/http2"
)

// recordSize is how much is written at once: the longest TLS record. A record
// is encrypted, written by one system call, and decrypted by the server as one,
// and holds some 50 requests.
const recordSize = 16 << 10

// writer is what only the writing goroutine touches.
type writer struct {
	enc      *encoder
	out      []byte // the next write: control frames, resumed bodies, fresh streams
	controls int    // bytes of control frames at the start of out
	filled   time.Time
	batch    []*Request
	size     int // recent size of a request on the wire: says how many may fit
	back     handback
	spare    []byte // for header blocks that need CONTINUATION
}

// write works until the connection is over.
func (c *conn) write() {
	for {
		now := time.Now()
		c.mu.Lock()
		c.fill(now)
		over, last := c.cause != nil, c.leaving != nil || c.idle()
		if !over && last && c.leaving == nil && len(c.out) == 0 {
			c.out = appendGoAway(c.out, http2.ErrCodeNo)
		}
		sleep := !over && !last && len(c.out) == 0
		if len(c.out) > 0 {
			c.writingSince = now
		}
		c.nudge = false
		c.mu.Unlock()
		c.back.flush()
		switch {
		case over:
			return
		case sleep:
			<-c.wake
			continue
		}
		if !c.send() {
			c.drain()
			return
		}
		c.mu.Lock()
		c.writingSince = time.Time{}
		switch {
		case c.leaving != nil:
			c.fail(c.leaving)
		case last && c.idle():
			c.fail(errDone)
		}
		c.mu.Unlock()
	}
}

// errDone is the cause of an orderly end.
var errDone = errors.New("connection retired")

// errOtherIdentity is why a request was not sent over a connection.
var errOtherIdentity = errors.New("the credential was exchanged meanwhile")

// fill puts the next write together; mu is held.
func (c *conn) fill(now time.Time) {
	over := c.cause != nil || c.leaving != nil
	if c.unhold && !over {
		c.leaveStale(now, &c.back)
	}
	c.out, c.filled = append(c.out[:0], c.control...), now
	c.control, c.controls = c.control[:0], len(c.out)
	c.pending.begin(c.nextID)
	if over {
		return
	}
	if c.peerTable >= 0 {
		c.enc.setLimit(c.peerTableLow)
		c.enc.setLimit(c.peerTable)
		c.peerTable = -1
	}
	if c.unhold {
		c.unhold = false
		c.release()
	}
	if c.pool.calm.paused.Load() {
		return // the sweeper wakes all when the pause is over
	}
	if c.pool.opt.identity() != c.identity {
		c.retire() // it has no room then, and leaves what there is to others
	}
	// At least one is taken, however long the last ones were.
	for len(c.out) == 0 || len(c.out)+c.size <= recordSize {
		urgent, others := c.room()
		if urgent == 0 {
			c.becomeFull()
			return
		}
		c.full, c.passed = others == 0, false
		fits := max((recordSize-len(c.out))/c.size, 1)
		c.batch = c.pool.queue.take(&c.waiter, c.batch[:0], min(fits, urgent), min(fits, others))
		if len(c.batch) == 0 {
			return
		}
		aheadToSend(c.batch)
		for i, r := range c.batch {
			c.start(r, now)
			c.batch[i] = nil
		}
	}
}

// becomeFull leaves what this writer was woken for to another; mu is held.
func (c *conn) becomeFull() {
	if !c.passed { // else nobody has woken it since
		c.pool.queue.pass(&c.waiter)
	}
	c.full, c.passed = true, true
}

// start encodes r as the next stream, or gives it back; mu is held.
func (c *conn) start(r *Request, now time.Time) {
	if outcome, why, stale := c.pool.stale(r, now); stale {
		r.settle(outcome, why)
		c.back.add(r)
		return
	}
	if r.Identity != c.identity && c.pool.opt.Authorize != nil {
		if c.pool.opt.Authorize(r, c.identity); r.Identity != c.identity {
			r.tries++ // changed twice since fill has looked: nobody signs for this connection any more
			c.retire()
			c.drop(&c.back, r, 0, NotAccepted, errOtherIdentity)
			return
		}
	}
	if n := listSize(r, len(c.pool.host)); n > c.peerList {
		r.tries++
		c.unfit = ErrHeaderLimit
		c.retire() // the next server may take more
		c.drop(&c.back, r, 0, NotAccepted, ErrHeaderLimit)
		return
	}
	for !c.streams.free(c.nextID) {
		c.nextID += 2
	}
	if r.call != nil && !r.call.begin(c, c.nextID) {
		r.settle(NotAccepted, errCanceled)
		c.back.add(r)
		return
	}
	id := c.nextID
	if c.nextID += 2; c.nextID >= lastStream {
		c.retire() // long before the ids run out: a new connection takes over
	}
	a := &r.Answer
	a.Status, a.Body, a.Broken = 0, a.Body[:0], false
	r.tries++
	r.over, r.Conn = c, c.number
	s := c.streams.open(id, r)
	at := len(c.out)
	c.fresh = append(c.fresh, started{id, at})
	c.headers(id, r)
	if len(r.Body) > 0 {
		s.left = r.Body
		c.body(s)
	}
	c.size = (7*c.size + len(c.out) - at) / 8
}

// lastStream leaves ample room for the ids that are skipped.
const lastStream = maxStream - 1<<20

// listSize is how long the header list of r counts (RFC 9113, 6.5.2).
func listSize(r *Request, host int) int {
	n := 5*entryOverhead + len(":method:scheme:authority:pathcontent-lengthPOSThttps") + 20 + host + len(r.Path)
	for i := range r.Header {
		n += len(r.Header[i].Name) + len(r.Header[i].Value) + entryOverhead
	}
	return n
}

// headers appends the HEADERS frame of r, and CONTINUATION frames if its block
// needs them; mu is held.
func (c *conn) headers(id uint32, r *Request) {
	at := len(c.out)
	flags := http2.FlagHeadersEndHeaders
	if len(r.Body) == 0 {
		flags |= http2.FlagHeadersEndStream
	}
	c.out = appendFrameHeader(c.out, 0, http2.FrameHeaders, flags, id)
	c.out = c.enc.appendRequest(c.out, r)
	n := len(c.out) - at - frameHeader
	if n <= c.peerFrame {
		c.out[at], c.out[at+1], c.out[at+2] = byte(n>>16), byte(n>>8), byte(n)
		return
	}
	block := append(c.spare[:0], c.out[at+frameHeader:]...)
	c.spare, c.out = block, c.out[:at]
	kind, flags := http2.FrameHeaders, flags&^http2.FlagHeadersEndHeaders
	for len(block) > 0 {
		k := min(len(block), c.peerFrame)
		if k == len(block) {
			flags |= http2.FlagHeadersEndHeaders
		}
		c.out = append(appendFrameHeader(c.out, k, kind, flags, id), block[:k]...)
		block, kind, flags = block[k:], http2.FrameContinuation, 0
	}
}

// body appends as much of what is left as the windows allow, and holds the
// rest; mu is held.
func (c *conn) body(s *stream) {
	for len(s.left) > 0 {
		n := int(min(int64(len(s.left)), int64(c.peerFrame), c.sendWindow, c.peerInitial+s.credit))
		if n <= 0 {
			if !s.blocked {
				s.blocked = true
				c.hold(s.id)
			}
			return
		}
		flags := http2.Flags(0)
		if n == len(s.left) {
			flags = http2.FlagDataEndStream
		}
		c.out = append(appendFrameHeader(c.out, n, http2.FrameData, flags, s.id), s.left[:n]...)
		s.left = s.left[n:]
		s.credit -= int64(n)
		c.sendWindow -= int64(n)
		c.spent += int64(n)
	}
	s.left = nil
}

// hold notes a stream whose body waits for a window. If the server answers
// without opening one, streams end while on the list: they are removed before
// the list outgrows the number of streams that can be open; mu is held.
func (c *conn) hold(id uint32) {
	if len(c.held) >= len(c.slots) { // twice as many as can be open
		c.held = slices.DeleteFunc(c.held, func(id uint32) bool { return c.streams.get(id) == nil })
	}
	c.held = append(c.held, id)
}

// release sends as much of the held bodies as the windows allow now; mu is
// held.
func (c *conn) release() {
	held := c.held
	c.held = c.held[:0]
	for i, id := range held {
		if c.sendWindow <= 0 || len(c.out) >= recordSize {
			c.unhold = c.sendWindow > 0
			c.nudge = c.nudge || c.unhold
			c.held = append(c.held, held[i:]...)
			return
		}
		if s := c.streams.get(id); s != nil && s.req != nil && len(s.left) > 0 {
			s.blocked = false
			had := len(s.left)
			c.body(s)
			c.resumed = append(c.resumed, resumed{id, had - len(s.left)})
		}
	}
}

// send writes out, and reports whether that went well. If not, nothing is
// written any more, and the requests of which the kernel has not taken a byte
// go elsewhere: they are not accepted, whatever became of the rest.
func (c *conn) send() bool {
	c.withdraw(time.Now())
	if len(c.out) == 0 {
		return true
	}
	before := c.raw.begun.Load()
	_, err := c.nc.Write(c.out)
	if err == nil {
		return true
	}
	// Each record was one write of at most recordSize bytes; the last of which
	// the kernel took anything may have arrived.
	records := int(c.raw.begun.Load() - before)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writingSince, c.mute = time.Time{}, err
	c.retire()
	why := c.reason(cmp.Or(c.cause, c.leaving, err))
	for _, f := range slices.Backward(c.fresh) { // the last one back is the first to go
		if s := c.streams.get(f.id); s != nil && s.req != nil && f.at/recordSize >= records {
			status := s.status
			c.drop(&c.back, c.streams.close(s), status, NotAccepted, why)
		}
	}
	return false
}

// drain is what the writer does when nothing can be written any more: it ends
// the connection, but leaves the reader time for what the server has sent.
// Before it closed, it may have answered, or have said in a GOAWAY what it did
// not accept. If it has closed, the reader is soon at the end; if not, what is
// under way comes within the time of a PING's answer.
func (c *conn) drain() {
	c.back.flush()
	c.pool.queue.leave(&c.waiter)
	late := time.NewTimer(c.pool.opt.PingTimeout)
	defer late.Stop()
	for waited := false; ; {
		c.mu.Lock()
		switch {
		case c.leaving != nil:
			c.fail(c.leaving) // whether or not the server heard why
		case waited || c.idle():
			c.fail(c.mute)
		}
		over := c.cause != nil
		c.nudge = false
		c.mu.Unlock()
		if over {
			return
		}
		select {
		case <-c.wake:
		case <-late.C:
			waited = true
		}
	}
}
