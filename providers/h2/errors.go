package h2

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/net/http2"
)

// The reasons in Request.Err, to be tested with errors.Is. Their texts, and
// those of errors that wrap them, hold nothing of a request.
var (
	// ErrMalformed: the path or a header would not be safe on the wire.
	ErrMalformed = errors.New("malformed request")
	// ErrHeaderLimit: the headers are longer than the server's settings allow.
	ErrHeaderLimit = errors.New("headers are longer than the server accepts")
	// ErrDeadline: Request.Deadline passed.
	ErrDeadline = errors.New("deadline passed")
	// ErrNotConnected: the deadline passed while no connection could be made.
	ErrNotConnected = errors.New("not connected")
	// ErrConnectionLost: the connection or the stream ended without an answer.
	ErrConnectionLost = errors.New("connection lost")
	// ErrLeaseLapsed: the request's Lease lapsed before it was written, or, if
	// it is Ambiguous, before all of it was.
	ErrLeaseLapsed = errors.New("lease lapsed")
	// ErrExpired: Request.Expires passed before all of it was written.
	ErrExpired = errors.New("expired")
	// ErrClosed: the pool was closed.
	ErrClosed = errors.New("pool closed")
)

// GoAwayError says that the server ended a connection, and why. It is an
// ErrConnectionLost.
type GoAwayError struct {
	Code http2.ErrCode
	// Reason is the word in the JSON that Apple's servers send, as in
	// {"reason":"Shutdown"}, or empty. It has only letters and digits, and at
	// most 64 of them.
	Reason string
	// Words is the rest of what the server said, cut to 128 bytes of printable
	// ASCII, without anything that may be a token or a password.
	Words string
}

func (e *GoAwayError) Error() string {
	s := "server is going away: " + e.Code.String()
	if e.Words != "" {
		s += " (" + e.Words + ")"
	}
	return s
}

// Unwrap makes it an ErrConnectionLost.
func (e *GoAwayError) Unwrap() error { return ErrConnectionLost }

// ResetError says that the server ended one stream, and why. It is an
// ErrConnectionLost.
type ResetError struct{ Code http2.ErrCode }

func (e *ResetError) Error() string { return "stream reset by the server: " + e.Code.String() }

// Unwrap makes it an ErrConnectionLost.
func (e *ResetError) Unwrap() error { return ErrConnectionLost }

// goAwayReason cuts the reason out of GOAWAY's debug data. The bytes are
// untrusted: anything but a plain word is dropped.
func goAwayReason(debug []byte) string {
	const key = `"reason"`
	_, rest, ok := strings.Cut(string(debug[:min(len(debug), 1024)]), key)
	if !ok {
		return ""
	}
	rest = strings.TrimLeft(rest, " \t\r\n:")
	if !strings.HasPrefix(rest, `"`) {
		return ""
	}
	word, _, ok := strings.Cut(rest[1:], `"`)
	if !ok || len(word) > 64 {
		return ""
	}
	for i := 0; i < len(word); i++ {
		if b := word[i]; (b|0x20 < 'a' || b|0x20 > 'z') && (b < '0' || b > '9') {
			return ""
		}
	}
	return word
}

// peerError ends a connection because of what the server sent. The code goes
// to the server in our GOAWAY.
type peerError struct {
	code http2.ErrCode
	what string
}

func (e peerError) Error() string { return fmt.Sprintf("%s: %s", e.code, e.what) }
