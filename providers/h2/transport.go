package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// Transport is an http.RoundTripper over a Pool, for everything that is not
// the hot path: token endpoints, tests, other people's clients. It speaks to
// the pool's server only, and may be used by several goroutines at once.
//
// Any method but CONNECT is sent. A request's body is read whole before it is
// queued, so a request that was not accepted is sent again without the caller.
// The answer's body is read while it comes; of what is not read, the pool
// buffers at most one stream window (64 KiB or Options.MaxAnswer + 16 KiB).
// Trailers and interim answers are dropped, nothing is decompressed, no cookie
// is kept and no redirect followed.
//
// The context ends an exchange at any point, the body included: the stream is
// reset. Without a deadline in the context, Options.Timeout is the deadline of
// the whole exchange.
type Transport struct {
	// Pool is what it sends through; it stays the caller's to close. Required.
	Pool *Pool
	// Lane is the index of the lane in Options.Lanes.
	Lane int
	// MaxRequest is the longest request body, in bytes. 1 MiB.
	MaxRequest int64
}

// RoundTripError says why there is no answer, and how sure it is that the
// server has not acted on the request.
type RoundTripError struct {
	// Outcome is NotAccepted or Ambiguous.
	Outcome Outcome
	// Err is the context's, or one of those that Request.Err can be.
	Err error
}

func (e *RoundTripError) Error() string { return e.Err.Error() + " (" + e.Outcome.String() + ")" }

// Unwrap returns Err.
func (e *RoundTripError) Unwrap() error { return e.Err }

// Timeout reports whether time ran out, as net.Error and url.Error ask.
func (e *RoundTripError) Timeout() bool {
	return errors.Is(e.Err, ErrDeadline) || errors.Is(e.Err, context.DeadlineExceeded)
}

const maxRequest = 1 << 20

// RoundTrip implements http.RoundTripper. Its errors are *RoundTripError.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	r, err := t.request(ctx, req)
	if err != nil {
		return nil, &RoundTripError{Outcome: NotAccepted, Err: err}
	}
	cl := r.call
	group := NewGroup(func([]*Request) { cl.finish() })
	if _, err := t.Pool.SubmitTo(ctx, t.Lane, []*Request{r}, group); err != nil {
		return nil, &RoundTripError{Outcome: NotAccepted, Err: err}
	}
	unhook := context.AfterFunc(ctx, func() { t.Pool.cancel(r, context.Cause(ctx)) })
	<-cl.headed
	if cl.status == 0 { // over without an answer
		unhook()
		return nil, roundTripError(ctx, r)
	}
	return t.response(req, r, unhook), nil
}

// roundTripError is for a request that was given back without an answer.
func roundTripError(ctx context.Context, r *Request) error {
	e := &RoundTripError{Outcome: r.Outcome, Err: r.Err}
	if deadline, ok := ctx.Deadline(); ok && errors.Is(r.Err, ErrDeadline) && !time.Now().Before(deadline) {
		e.Err = context.DeadlineExceeded
	}
	if errors.Is(r.Err, errCanceled) {
		e.Err = r.call.canceled
	}
	return e
}

// request makes a Request of req, whose body is closed in any case.
func (t *Transport) request(ctx context.Context, req *http.Request) (*Request, error) {
	body, err := t.body(ctx, req)
	if err != nil {
		return nil, err
	}
	if req.URL == nil || req.URL.Scheme != "https" || !t.Pool.serves(req.URL.Host) || req.Host != "" && !t.Pool.serves(req.Host) {
		return nil, fmt.Errorf("%w: request is not for %s", ErrMalformed, t.Pool.host)
	}
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	r := &Request{Path: []byte(req.URL.RequestURI()), Body: body, call: newCall(method)}
	r.Deadline, _ = ctx.Deadline()
	named := make(map[string]bool) // by Connection: they belong to it
	for _, line := range req.Header["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			named[strings.ToLower(textproto.TrimString(name))] = true
		}
	}
	for name, values := range req.Header {
		name = strings.ToLower(name)
		if ofConnection(name) || named[name] {
			continue
		}
		indexing := Indexed
		switch name {
		case "authorization", "cookie", "proxy-authorization":
			indexing = NeverIndexed
		}
		for _, v := range values {
			r.Header = append(r.Header, Field{Name: name, Value: []byte(textproto.TrimString(v)), Indexing: indexing})
		}
	}
	return r, nil
}

// body reads the request's body whole, and closes it.
func (t *Transport) body(ctx context.Context, req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	most := t.MaxRequest
	if most == 0 {
		most = maxRequest
	}
	// A caller that cancels does not want to wait for a body that does not come.
	unhook := context.AfterFunc(ctx, func() { _ = req.Body.Close() })
	b, err := io.ReadAll(io.LimitReader(req.Body, most+1))
	if unhook() {
		err = errors.Join(err, req.Body.Close())
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("reading request body: %w", err)
	case int64(len(b)) > most:
		return nil, fmt.Errorf("%w: body over %d bytes", ErrMalformed, most)
	case req.ContentLength > 0 && int64(len(b)) != req.ContentLength:
		return nil, fmt.Errorf("%w: body of %d bytes, %d announced", ErrMalformed, len(b), req.ContentLength)
	}
	return b, nil
}

// serves reports whether a URL's host is the pool's server.
func (p *Pool) serves(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "443"
	}
	return port == p.port && strings.EqualFold(name, p.name)
}

func (t *Transport) response(req *http.Request, r *Request, unhook func() bool) *http.Response {
	cl := r.call
	cl.mu.Lock()
	defer cl.mu.Unlock()
	res := &http.Response{
		Status:     strconv.Itoa(cl.status) + " " + http.StatusText(cl.status),
		StatusCode: cl.status, Proto: "HTTP/2.0", ProtoMajor: 2,
		Header: cl.header, ContentLength: -1, Request: req,
	}
	if nc, ok := cl.conn.nc.(*tls.Conn); ok {
		state := nc.ConnectionState()
		res.TLS = &state
	}
	b := &answerBody{pool: t.Pool, r: r, unhook: unhook, missing: -1}
	if n, err := strconv.ParseInt(cl.header.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		res.ContentLength, b.missing = n, n
	}
	switch {
	case cl.method == http.MethodHead, cl.status == http.StatusNotModified:
		b.missing = -1 // what is announced is not sent
	case cl.bare && res.ContentLength < 0:
		res.ContentLength = 0
	}
	res.Body = b
	return res
}

// answerBody is an answer's body. Read and Close may be called at once, as
// http.Client does.
type answerBody struct {
	pool    *Pool
	r       *Request
	unhook  func() bool // from the context
	missing int64       // of the announced length; -1 = it was not announced
}

// Read implements io.Reader. An answer that ends early is an error.
func (b *answerBody) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, grant, err := b.r.call.next(p, b.pool.streamWindow())
	if grant > 0 {
		b.r.call.conn.grant(b.r.call.id, b.r, grant)
	}
	if b.missing >= 0 {
		if b.missing -= int64(n); b.missing < 0 {
			return n, fmt.Errorf("%w: body longer than its content-length", ErrConnectionLost)
		}
	}
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && b.missing > 0:
		err = io.ErrUnexpectedEOF
	case errors.Is(err, errBodyClosed):
		err = http.ErrBodyReadAfterClose
	}
	b.unhook()
	return n, err
}

// errBodyClosed is the reason of a body that was closed before its end.
var errBodyClosed = errors.New("answer's body closed")

// Close implements io.Closer. The rest of the body is no longer wanted.
func (b *answerBody) Close() error {
	b.unhook()
	b.pool.cancel(b.r, errBodyClosed)
	b.r.call.close()
	return nil
}
