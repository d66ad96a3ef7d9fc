package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// Call is one attempt to deliver an event.
type Call struct {
	ID   string
	Body []byte
	At   time.Time
}

// Answer is what became of a Call.
type Answer struct {
	Status     int           // 0 = there was none
	RetryAfter time.Duration // what the endpoint asks for; 0 = nothing
	Word       string        // what happened, for logs and dead letters: never anything of a body
}

// Delivered reports whether the endpoint has the event.
func (a *Answer) Delivered() bool { return a.Status >= 200 && a.Status <= 299 }

// CallerOptions bound what an endpoint may do to a Caller. All are required but Roots.
type CallerOptions struct {
	Timeout time.Duration          // of a whole call
	AtOnce  int                    // connections to an endpoint
	Check   func(netip.Addr) error // refuses addresses; CheckAddress but in tests
	Roots   *x509.CertPool         // nil = the system's
	Agent   string                 // the header User-Agent
	Now     func() time.Time       // for dates in Retry-After
	Resolve func(*net.Dialer)      // changes how names are looked up; nil = as the system does
}

const (
	// mostAnswer is how much of an answer's body is read, so that its connection can be
	// used again. What has more is not read to its end.
	mostAnswer = 16 << 10
	mostHeader = 16 << 10
)

// Caller makes calls over HTTPS. It is safe for concurrent use.
type Caller struct {
	client *http.Client
	o      CallerOptions
}

// NewCaller makes a Caller.
func NewCaller(o CallerOptions) *Caller {
	dialer := &net.Dialer{Timeout: o.Timeout, KeepAlive: 30 * time.Second, Control: control(o.Check)}
	if o.Resolve != nil {
		o.Resolve(dialer)
	}
	return &Caller{o: o, client: &http.Client{
		Timeout: o.Timeout,
		// Elsewhere is where nobody has checked anything.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:       nil, // it would do the look-up
			DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
			TLSHandshakeTimeout: o.Timeout, ResponseHeaderTimeout: o.Timeout, ExpectContinueTimeout: time.Second,
			MaxConnsPerHost: o.AtOnce, MaxIdleConnsPerHost: o.AtOnce, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: mostHeader, DisableCompression: true,
			// HTTP/1.1 alone: what one endpoint can do to a connection is of that call.
			TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
		},
	}}
}

// Close closes the connections that nobody uses.
func (c *Caller) Close() { c.client.CloseIdleConnections() }

// Post implements Poster.
func (c *Caller) Post(ctx context.Context, to *Endpoint, call *Call) Answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL, bytes.NewReader(call.Body))
	if err != nil {
		return Answer{Word: "no request can be made of the URL"}
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": c.o.Agent,
		"Webhook-Id": call.ID, "Webhook-Timestamp": strconv.FormatInt(call.At.Unix(), 10), "Webhook-Signature": Sign(to.Secrets, call.ID, call.At, call.Body),
	} {
		r.Header.Set(name, value)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return Answer{Word: wordOf(err)}
	}
	defer answer.Body.Close()
	_, _ = io.CopyN(io.Discard, answer.Body, mostAnswer) // an answer is its status
	a := Answer{Status: answer.StatusCode, Word: "answered " + strconv.Itoa(answer.StatusCode)}
	if a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable {
		a.RetryAfter = retryAfter(answer.Header.Get("Retry-After"), c.o.Now())
	}
	return a
}

// wordOf says what kept a call from its answer, without the URL, whose path may be a
// secret.
func wordOf(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	var op *net.OpError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	case errors.As(err, &dns):
		return "its name is not known"
	case errors.As(err, &cert):
		return "its certificate is not to be trusted"
	case errors.As(err, &op):
		if op.Op == "dial" {
			return fmt.Sprintf("cannot be dialled: %v", op.Err)
		}
		return fmt.Sprintf("the connection failed: %v", op.Err)
	case errors.Is(err, context.Canceled):
		return "given up"
	}
	return "no answer that is HTTP"
}

// retryAfter reads the header: seconds or a date; 0 if it is neither.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(uint64(longestRest/time.Second), seconds)) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, min(longestRest, at.Sub(now)))
	}
	return 0
}
