package h2

import "time"

// Outcome is what became of a request.
type Outcome uint8

// The outcomes. Every submitted request ends with exactly one of them.
const (
	// Unfinished is the state before the request is given back.
	Unfinished Outcome = iota
	// Answered: the server's answer is in Answer.
	Answered
	// NotAccepted: the server has certainly not acted on it. Nothing was
	// written, or the protocol says so (REFUSED_STREAM, above GOAWAY's last).
	NotAccepted
	// Ambiguous: some of it may have been written and no answer came.
	Ambiguous
	// ExpiredUnsent: Expires had passed before anything was written.
	ExpiredUnsent
)

var outcomeNames = [...]string{"unfinished", "answered", "not_accepted", "ambiguous", "expired_unsent"}

func (o Outcome) String() string { return outcomeNames[o] }

// Indexing says how a header field is treated by header compression.
type Indexing uint8

// The kinds of indexing.
const (
	Indexed      Indexing = iota // the same in most requests: the peer remembers it
	NotIndexed                   // changes from request to request
	NeverIndexed                 // secret: no hop may remember it
)

// Field is one request header. Name is lower case. Name and Value are checked
// byte by byte before anything is sent.
type Field struct {
	Name     string
	Value    []byte
	Indexing Indexing
}

// Answer is what the server said. Its memory is reused when the request is
// sent again.
type Answer struct {
	Status int
	// Header holds the values of Options.AnswerHeaders, in that order; empty
	// where the server did not send one, or one with control characters.
	Header [][]byte
	Body   []byte // at most Options.MaxAnswer bytes; what is longer is cut
	// Broken says that the body ended early: the stream was reset, the
	// connection lost, or the deadline passed in the middle of it.
	Broken bool
}

// Request is one POST and, later, what became of it. The pool owns it, and all
// that it points to, from Submit until it is handed to done. It may then be
// changed and submitted again: its memory is reused.
type Request struct {
	Path   []byte // absolute, without query; see the grammar in check.go
	Header []Field
	Body   []byte
	// Expires, unless zero, is when it must no longer be sent.
	Expires time.Time
	// Deadline is when waiting ends. A zero Deadline is Options.Timeout from
	// Submit.
	Deadline time.Time
	// Lease, unless nil, takes the place of Options.Lease for this request.
	Lease Lease
	// Identity is that of the credential in Header, where Options.Identity is set.
	Identity uint64
	// Tag is the caller's.
	Tag any

	// Filled in before it is handed to done.
	Outcome Outcome
	Answer  Answer
	Err     error // why there is no answer; nil when Answered
	// Conn is the number, from 1 on, of the pool's connection that it was last
	// written to; of one that was never written it is that of the latest attempt to
	// connect. 0 = there was none.
	Conn uint32

	until time.Time // Deadline, or the default
	tries int
	lane  int
	over  *conn // what it was last written to
	group *Group
	call  *call // of a Transport's; nil on the hot path
}

// settle sets the outcome of a request that has no answer.
func (r *Request) settle(o Outcome, err error) {
	r.Outcome, r.Err = o, err
}
