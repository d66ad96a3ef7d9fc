package engine

import (
	"crypto/tls"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

const (
	maxFrame       = 16 << 10
	headerTable    = 4096
	maxHeaderBlock = 16 << 10
	streamWindow   = 1 << 20 // more than bodyLimit: a body never waits for us
	connWindow     = 1 << 30
	firstWindow    = 65535 // of both sides, before any SETTINGS
	writeTime      = 30 * time.Second
	drainTime      = time.Second
	maxWindow      = 1<<31 - 1
	outLimit       = 4 << 20
	leaveTime      = 30 * time.Second // from GOAWAY to the end, at most
)

// Conn is one HTTP/2 connection. Its reader takes requests apart and asks its
// session; answers are encoded at once, into the buffer of the time at which
// they are due, and its writer sends whatever is due in one piece.
type Conn struct {
	session Session
	now     func() time.Time // what requests are told they came at
	conn    *tls.Conn
	socket  *readAhead // below conn

	// Only the reader touches these.
	in        []byte // what was read; from here to there is not looked at yet
	from, to  int
	came      time.Time // when it was read; zero until somebody asks
	clock     time.Time // came, by the session's clock
	hpack     *hpackDecoder
	streams   map[uint32]*stream // whose request is not complete
	free      []*stream
	block     []byte // of a header that goes on in CONTINUATION frames
	blockOf   uint32
	blockEnd  bool     // END_STREAM was on its HEADERS
	blockSelf bool     // its HEADERS made the stream depend on itself
	forgotten []uint32 // streams that we closed before their request was complete; the newest of them
	forgets   int      // how many there have been
	consumed  int      // bytes since the last WINDOW_UPDATE of the connection

	wake chan struct{} // capacity 1: there is something to write
	idle chan struct{} // closed when no answer is missing after goAway, or at the end

	ended chan struct{} // closed at the end

	stalled atomic.Bool // a hint of stallFor and failed, for the reader

	mu       sync.Mutex
	out      batch // due now
	wheel    wheel
	waiting  []waitingAnswer
	open     int                 // streams without a complete answer
	silent   map[uint32]struct{} // of those the ones that will never have one; nil: none
	last     uint32
	window   int64            // of the connection, for our bodies
	initial  int64            // of its streams
	updates  map[uint32]int64 // of streams, where the client gave some
	writing  bool             // the writer has taken what was due and not sent it yet
	bidden   bool             // the writer has said goodbye and ended
	idleOnce bool
	failed   bool

	limit   int // of streams, as last told
	unacked int // SETTINGS of ours

	leaving bool      // after GOAWAY
	closing bool      // and the connection ends once all is answered,
	abrupt  bool      // or even before that,
	leaveBy time.Time // or then
	kept    uint32    // the last stream that GOAWAY said is processed
	settled uint32    // the newest stream whose decision stands: its answer was written, or given up

	mute, deaf bool
	stallFor   time.Duration
}

// stream is a request on its way in.
type stream struct {
	id   uint32
	req  Request
	body []byte
	text arena // of the strings in req

	size      int    // of its header list
	pseudos   uint8  // the pseudo-header fields that came, a bit each
	announced bool   // there was a content-length,
	length    uint64 // of this many bytes
	fault     string // why the header is malformed; empty: it is not
}

func newConn(s Session, now func() time.Time, c *tls.Conn, socket *readAhead) *Conn {
	fc := &Conn{
		session: s, now: now, conn: c, socket: socket,
		in: make([]byte, readSize), hpack: newHPACKDecoder(), streams: map[uint32]*stream{},
		wake: make(chan struct{}, 1), idle: make(chan struct{}), ended: make(chan struct{}),
		window: firstWindow, initial: firstWindow, updates: map[uint32]int64{},
	}
	socket.dry = fc.Wake // nothing more to read at once: let the answers go
	fc.limit, fc.unacked = s.Begin(fc), 1
	fc.out.frames = appendSettings(fc.out.frames, fc.limit)
	return fc
}

// errPeer ends a connection because of what the client did.
type errPeer struct {
	code http2.ErrCode
	why  string
}

func (e errPeer) Error() string { return e.code.String() + ": " + e.why }

// run looks after the connection until it ends.
func (c *Conn) run() {
	var writer sync.WaitGroup
	writer.Go(c.write)
	err := c.read()
	var peer errPeer
	if errors.As(err, &peer) {
		c.mu.Lock()
		c.out.frames = appendGoAway(c.out.frames, c.last, peer.code, peer.why)
		c.session.Complained(0, peer.Error())
		c.mu.Unlock()
		c.flushLast()
		c.drain()
	}
	c.fail()
	writer.Wait()
	c.settle()
}

// flushLast waits until the writer has sent what is due, or failed to; a write
// has its own deadline.
func (c *Conn) flushLast() {
	c.Wake()
	for {
		c.mu.Lock()
		done := len(c.out.frames) == 0 && !c.writing || c.failed || c.bidden
		c.mu.Unlock()
		if done {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// drain reads what the client still sends, for a while: closing a socket with
// unread bytes resets it, and the client would not see our GOAWAY.
func (c *Conn) drain() {
	_ = c.conn.CloseWrite() // the client may be gone
	if c.socket.SetReadDeadline(time.Now().Add(drainTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.socket, outLimit)
	}
}

// fail ends the connection at once.
func (c *Conn) fail() {
	c.mu.Lock()
	if !c.failed {
		c.failed = true
		c.stalled.Store(true)
		close(c.ended)
	}
	c.closeIdle()
	c.mu.Unlock()
	c.Wake()
	// Not the TLS connection: its Close would wait for a writer that is stuck.
	_ = c.socket.Close()
}

// closeIdle is called with mu held.
func (c *Conn) closeIdle() {
	if !c.idleOnce {
		c.idleOnce = true
		close(c.idle)
	}
}

func (c *Conn) goAway() {
	c.mu.Lock()
	if !c.leaving {
		c.leaving, c.kept = true, c.last
		c.out.frames = appendGoAway(c.out.frames, c.last, http2.ErrCodeNo, "")
	}
	c.mu.Unlock()
	c.Wake()
}
