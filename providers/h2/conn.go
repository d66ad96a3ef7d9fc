package h2

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// conn is one connection. Two goroutines work on it, and nothing else runs per
// request:
//
//   - the writer (run, in conn_write.go) takes requests from the pool's queue,
//     encodes as many as fill a TLS record, and writes them at once;
//   - the reader (read, in conn_read.go) takes frames apart in its own buffer
//     and settles what they end.
//
// The pool's sweeper looks in every sweepInterval for deadlines and silence.
//
// Who owns a request: the queue until the writer takes it; then, under mu and
// in one step, it is encoded and gets a slot. From there on it belongs to the
// slot, and whoever takes it out of the slot under mu (reader, sweeper, or end)
// hands it back, exactly once. Nobody reads its bytes after that step, except
// for a body held back by flow control, which is copied under mu while the
// slot still has it. What is encoded and not yet written can be taken back,
// too (conn_stale.go).
//
// Requests are handed back outside of mu: done may call the pool.
type conn struct {
	pool *Pool
	// number is that of the dial that made it: the pool's dials are counted.
	number uint32
	nc     net.Conn // TLS
	raw    *wire    // beneath it
	waiter
	used chan struct{} // closed when it takes no new request: retired or failed
	// identity is that of the credential in use when it was opened; never changed.
	identity uint64

	writer
	reader
	pending

	answered atomic.Bool // some request was: the server is worth dialing again

	// mu guards what follows. Under it the mu of the queue, a group, a call,
	// calm or troubles may be taken, never the other way around.
	mu sync.Mutex
	*streams
	nextID  uint32
	control []byte // frames other than HEADERS and DATA, to be written first
	held    []uint32
	unhold  bool // a window has opened: held streams may have room

	retired bool
	cause   error        // why it is over; nil while it lives
	leaving error        // GOAWAY is the last thing to be written, because of this
	mute    error        // why a write failed: nothing more is written, but it is still read
	unfit   error        // why it was retired although it still worked
	goAway  *GoAwayError // the server's latest
	full    bool         // the writer wants to know when a stream ends
	passed  bool         // the work it was woken for was left to another
	nudge   bool         // the writer has something to do since it last looked
	warm    bool         // the server knows us, by its last answer, or has no such rule: more than one may be in flight

	// The server's settings.
	settled       bool // its first SETTINGS have come
	peerStreams   uint32
	peerInitial   int64
	peerFrame     int
	peerList      int
	sendWindow    int64
	peerTable     int // SETTINGS_HEADER_TABLE_SIZE, -1 = nothing new
	peerTableLow  int // the lowest since the writer last looked
	receiveWindow int

	lastRead     time.Time
	probed       bool      // a PING is out because nothing was read for long
	writingSince time.Time // zero = no write under way
	pings        uint64    // sent so far; the number is the payload
	pinging      bool      // one for ended streams is out
	streamFrames bool      // HEADERS or DATA have come since that one
	score        int       // counts frames that make no progress
}

// wire counts the TLS records of which the kernel took at least a byte.
type wire struct {
	net.Conn
	begun atomic.Int64
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if n > 0 {
		w.begun.Add(1)
	}
	return n, err
}

func newConn(p *Pool, nc net.Conn, raw *wire) *conn {
	now := time.Now()
	c := &conn{
		pool: p, nc: nc, raw: raw, waiter: newWaiter(), used: make(chan struct{}), identity: p.opt.identity(),
		streams: newStreams(p.opt.StreamsPerConnection, now), nextID: p.opt.firstStream,
		peerStreams: maxStream, peerInitial: firstWindow, peerFrame: maxFrame, peerList: 1 << 30,
		sendWindow: firstWindow, peerTable: -1, receiveWindow: connWindow, lastRead: now, streamFrames: true,
	}
	c.writer = writer{enc: newEncoder(p.host), out: make([]byte, 0, recordSize+4<<10), size: 512}
	c.reader = reader{in: make([]byte, readBuffer), dec: newDecoder(p.opt.AnswerHeaders)}
	c.control = appendPreface(make([]byte, 0, 256), p.streamWindow())
	c.nudge = true
	return c
}

// run works until the connection is over and everything on it is handed back.
func (c *conn) run() {
	var reading sync.WaitGroup
	reading.Go(c.read)
	c.write()
	reading.Wait()
	c.end()
}

// Methods below that say so are called with mu held.

// fail ends the connection at once; mu is held. The rest is done by end when
// both goroutines have noticed.
func (c *conn) fail(cause error) {
	if c.cause != nil {
		return
	}
	c.cause = cause
	c.retire()
	c.nudge = true
	// Not the TLS connection: its Close would wait for a writer that is stuck.
	_ = c.raw.Close() // reader and writer notice it; nothing else has to
}

// leave ends the connection because of what the server did: it is told why,
// and nothing is read any more; mu is held.
func (c *conn) leave(err error) {
	if c.cause != nil || c.leaving != nil {
		return
	}
	code := http2.ErrCodeInternal
	var peer peerError
	if errors.As(err, &peer) {
		code = peer.code
	}
	c.leaving = err
	c.retire()
	c.control = appendGoAway(c.control[:0], code)
	c.nudge = true
}

// retire stops new requests; mu is held.
func (c *conn) retire() {
	if !c.retired {
		c.retired, c.nudge = true, true
		close(c.used)
	}
}

// Retire is retire for callers without mu.
func (c *conn) Retire() {
	c.mu.Lock()
	c.retire()
	c.mu.Unlock()
	c.wakeUp()
}

// cut ends the connection because the pool is closed.
func (c *conn) cut() {
	c.mu.Lock()
	c.fail(ErrClosed)
	c.mu.Unlock()
	c.wakeUp()
}

// granted is how many streams may be open at once: what the server says, what we
// know of it, and what was asked for; mu is held.
func (c *conn) granted() int {
	if c.retired {
		return 0
	}
	limit := min(c.pool.opt.StreamsPerConnection, int(min(c.peerStreams, maxStream)))
	if !c.warm {
		// Apple grants a token-authenticated connection one stream until it
		// knows us, and its SETTINGS may come after our first request.
		limit = min(limit, 1)
	}
	if shift := c.pool.calm.shift.Load(); shift > 0 {
		limit = min(limit, max(limit>>shift, 1))
	}
	return limit
}

// room is how many more streams may be opened now, by the most urgent lane and
// by the others; mu is held.
func (c *conn) room() (urgent, others int) {
	if c.sendWindow <= 0 {
		return 0, 0
	}
	limit := c.granted()
	urgent = max(limit-c.live-c.ended, 0)
	return urgent, max(urgent-min(c.pool.opt.Reserve, limit/2), 0)
}

// isAnswered notes that the server is worth dialing again.
func (c *conn) isAnswered() {
	if !c.answered.Load() { // a store per answer would be noticed
		c.answered.Store(true)
		c.pool.troubles.answered()
	}
}

// idle reports whether nothing more is to come; mu is held.
func (c *conn) idle() bool { return c.retired && c.live == 0 }

// rouse wakes the writer if a freed stream or a larger window matters to it: it
// had no room, or the connection can end now; mu is held.
func (c *conn) rouse() {
	if c.full || c.idle() {
		c.nudge = true
	}
}

// drop hands back the request of a stream that ends without its answer, or
// without all of it; mu is held, and the slot's request is out already.
func (c *conn) drop(h *handback, r *Request, status int, o Outcome, why error) {
	if status != 0 {
		// The provider has decided, only the explanation is missing.
		r.Outcome, r.Err = Answered, nil
		r.Answer.Status, r.Answer.Broken = status, true
		if r.call != nil {
			r.call.breakOff(why)
		}
		c.isAnswered()
		h.add(r)
		return
	}
	r.settle(o, why)
	if o == NotAccepted {
		c.pool.again(h, r)
		return
	}
	h.add(r)
}

// reason is what requests are told when a connection ends because of cause; mu
// is held.
func (c *conn) reason(cause error) error {
	switch {
	case errors.Is(cause, ErrClosed):
		return cause
	case c.goAway != nil:
		return c.goAway
	case cause == errDone && c.unfit != nil:
		return c.unfit
	case errors.Is(cause, ErrConnectionLost):
		return cause
	}
	return fmt.Errorf("%w: %w", ErrConnectionLost, cause)
}

// end hands back what is still in flight when reader and writer are gone.
func (c *conn) end() {
	var h handback
	c.mu.Lock()
	why := c.reason(c.cause)
	ours := errors.Is(c.cause, ErrClosed) || c.cause == errDone && c.goAway == nil && c.unfit == nil
	lost := c.live
	for i := range c.slots {
		s := &c.slots[i]
		if s.id == 0 || s.req == nil {
			continue
		}
		status := s.status
		c.drop(&h, c.streams.close(s), status, Ambiguous, why)
	}
	// A request keeps a pointer to its last connection: let go of the memory.
	c.slots, c.in, c.out, c.held = nil, nil, nil, nil
	c.mu.Unlock()
	c.pool.queue.leave(&c.waiter)
	c.pool.forget(c)
	h.flush()
	if !ours {
		c.pool.troubles.end(time.Now(), why, c.answered.Load(), lost)
	}
}
