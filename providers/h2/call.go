package h2

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

// call is the part of a Request that only a Transport uses: any method and
// target, all of the answer's header, and a body that is read as it arrives. It
// is nil on the hot path.
//
// The server's part is called by the connection with its mu held; mu here may
// be taken under that, never the other way around.
type call struct {
	method string
	headed chan struct{} // closed when the answer's header is there, or will never be
	ended  chan struct{} // closed when the pool has given the request back

	mu       sync.Mutex
	more     sync.Cond
	canceled error // why the caller no longer wants an answer

	conn *conn // where it was last written to
	id   uint32

	status int
	bare   bool // there is no body, not even an empty one
	header http.Header
	body   []byte // received and not yet read
	// read is what may be granted to the server again: read, or padding.
	read   int
	broken error // why the answer ended early
	over   bool  // nothing more will come
}

// errCanceled ends a request whose caller went away. The caller gets its own
// reason.
var errCanceled = errors.New("canceled")

func newCall(method string) *call {
	c := &call{method: method, headed: make(chan struct{}), ended: make(chan struct{}), header: make(http.Header)}
	c.more.L = &c.mu
	return c
}

// begin notes the stream that the request is about to be written to. It reports
// false when nobody is waiting for it any more.
func (c *call) begin(to *conn, id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.id = to, id
	return c.canceled == nil
}

// field stores one field of the answer's header.
func (c *call) field(name, value []byte) {
	switch string(name) {
	case "", "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "trailer":
		return
	}
	for _, b := range name {
		if !nameByte[b] {
			return // also of pseudo headers
		}
	}
	for _, b := range value {
		if b < 0x20 && b != '\t' || b == 0x7f {
			return // as elsewhere: it was no header of the server's
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := http.CanonicalHeaderKey(string(name))
	c.header[key] = append(c.header[key], string(value))
}

// interim forgets the header of a 1xx answer.
func (c *call) interim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.header)
}

// answered is called when the header is complete; end means that no body
// follows.
func (c *call) answered(status int, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.bare = status, end
	close(c.headed)
}

// data stores a part of the body, which came with some padding.
func (c *call) data(p []byte, padding int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.body = append(c.body, p...)
	c.read += padding
	c.more.Broadcast()
}

// breakOff notes why the rest of the answer will not come.
func (c *call) breakOff(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken = why; why == nil {
		c.broken = io.ErrUnexpectedEOF
	}
}

// close drops what has not been read.
func (c *call) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.body = nil
	if c.canceled == nil {
		c.canceled = errBodyClosed
	}
	c.more.Broadcast()
}

// finish is called when the pool gives the request back.
func (c *call) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.status == 0 {
		close(c.headed)
	}
	close(c.ended)
	c.more.Broadcast()
}

// next waits for a part of the body and copies it to p. It also returns how
// much is to be granted to the server again, once that is worth a frame.
func (c *call) next(p []byte, window int) (n, grant int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.body) == 0 && !c.over && c.canceled == nil {
		c.more.Wait()
	}
	switch {
	case c.canceled != nil:
		return 0, 0, c.canceled
	case len(c.body) == 0 && c.broken != nil:
		return 0, 0, c.broken
	case len(c.body) == 0:
		return 0, 0, io.EOF
	}
	n = copy(p, c.body)
	if c.body = c.body[n:]; len(c.body) == 0 {
		c.body = nil
	}
	if c.read += n; c.read >= window/4 && !c.over {
		grant, c.read = c.read, 0
	}
	return n, grant, nil
}

// cancel ends a call whose caller no longer wants an answer. The pool gives the
// request back at once, wherever it is.
func (p *Pool) cancel(r *Request, why error) {
	cl := r.call
	cl.mu.Lock()
	if cl.over || cl.canceled != nil {
		cl.mu.Unlock()
		return
	}
	cl.canceled = why
	on, id := cl.conn, cl.id
	cl.more.Broadcast()
	cl.mu.Unlock()
	if on != nil {
		on.cancel(id, r)
	}
	if p.queue.remove(r) {
		r.settle(NotAccepted, errCanceled)
		giveBack(r)
	}
	// Between the queue and a stream, begin sees it.
}

// cancel resets the stream that r is on, if it still is.
func (c *conn) cancel(id uint32, r *Request) {
	var h handback
	c.mu.Lock()
	if s := c.streams.get(id); s != nil && s.req == r {
		c.giveUp(s, time.Now(), errCanceled, &h)
		c.pingEnded()
	}
	wake := c.nudge
	c.mu.Unlock()
	if wake {
		c.wakeUp()
	}
	h.flush()
}

// grant lets the server send n bytes more on the stream that r is on.
func (c *conn) grant(id uint32, r *Request, n int) {
	c.mu.Lock()
	if s := c.streams.get(id); s != nil && s.req == r {
		s.taken -= n
		c.control, c.nudge = appendWindowUpdate(c.control, id, uint32(n)), true
	}
	c.mu.Unlock()
	c.wakeUp()
}
