package engine

import (
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/net/http2"
)

// Options make an Engine.
type Options struct {
	Certificate tls.Certificate
	// Now is the clock that Request.At goes by. Latencies pass in real time,
	// whatever it says.
	Now func() time.Time
	// HTTP2Only says why a path is not served over HTTP/1.1; empty: it is.
	HTTP2Only func(path string) string
}

// Client is who has opened a connection.
type Client struct {
	ID   uint64 // of the connection: from 1, in the order of arrival
	Addr net.Addr
}

// Field is one header field, its name in lower case.
type Field struct{ Name, Value string }

// Request is a whole request. Its memory, that of its strings included, is used
// again once its answer is queued (Session.Queued has returned) or, with
// HTTP/1.1, written.
type Request struct {
	Method string
	Path   string
	Fields []Field   // in the order received, repeated names included
	Body   []byte    // what is longer than 64 KiB is cut off soon after that
	Stream uint32    // 0 with HTTP/1.1
	At     time.Time // by Options.Now, when it came or a little later
}

// Answer is what a Session lets the engine send. One that is used again keeps
// the capacity of its slices, and none of its strings.
type Answer struct {
	Status  int           // HTTP status
	Fields  []Field       // header fields, names in lower case
	Body    []byte        // may be empty
	Latency time.Duration // how long to wait before it is sent
	Receipt Receipt
	// Never leaves the request without an answer for ever. It is not dropped
	// either: the Session knows.
	Never bool
	// Cut ends a connection of HTTP/1.1 in place of the answer. With HTTP/2 a
	// Session does that by its Conn.
	Cut bool

	text arena // of strings in Fields
}

// Receipt is what a Session knows an answer by. The engine gives it back when
// the answer does not get out.
type Receipt struct {
	Key  uint64
	Note uint32
}

// Reset makes it empty.
func (a *Answer) Reset() {
	a.Status, a.Latency, a.Receipt, a.Never, a.Cut = 0, 0, Receipt{}, false, false
	a.Fields, a.Body, a.text = a.Fields[:0], a.Body[:0], a.text[:0]
}

// Keep copies b into the answer's memory. The string is valid until Reset.
func (a *Answer) Keep(b []byte) string { return a.text.keep(b) }

// Answers decides about the requests of one connection: all that HTTP/1.1
// needs.
type Answers interface {
	// Answer decides a request. What it returns is the engine's until the next
	// call, which comes after this one has returned and its answer is queued or
	// written.
	Answer(*Request) *Answer
	// Dropped says that the answer to a stream did not get out. undone: and its
	// client knows that the request was not processed. It may be called with the
	// connection held, and by any goroutine.
	Dropped(stream uint32, r Receipt, undone bool)
}

// Session decides about one connection. Those of its methods that are given a
// Held are called while the connection is held, so one after another.
type Session interface {
	Answers
	// Begin is called before all that follows, once the client has turned out to
	// speak HTTP/2. It returns how many streams it is granted at first.
	Begin(*Conn) (streams int)
	// Adjust is called between Answer and the queueing of its answer, for what
	// the client is to read before it.
	Adjust(Held)
	// Queued is called behind it, before the next request is looked at, and with
	// nothing held.
	Queued(stream uint32)
	// Over deals with a stream above the limit, which came after previous and is
	// not processed.
	Over(h Held, stream, previous uint32)
	// Pinged is called before a PING is answered.
	Pinged(Held)
	// Idle is called while no stream is open, and returns when to call it again;
	// 0 means not before something else happens on the connection, or
	// Engine.Wake.
	Idle(Held) time.Duration
	// Complained says what the client did against HTTP/2: with a stream, or with
	// the whole connection (0). The connection is held.
	Complained(stream uint32, what string)
}

// Code is an error code of HTTP/2 (RFC 9113, section 7).
type Code = http2.ErrCode

// The codes that a Session has a use for.
const (
	NoError         = http2.ErrCodeNo
	ProtocolError   = http2.ErrCodeProtocol
	RefusedStream   = http2.ErrCodeRefusedStream
	EnhanceYourCalm = http2.ErrCodeEnhanceYourCalm
)
