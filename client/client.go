// Package client sends notifications through a gateway, and asks what became of them.
//
//	c, err := client.New(client.Options{URL: "http://127.0.0.1:8088", Key: key})
//	accepted, err := c.Send(ctx, &client.Message{App: "shop", ServiceType: "transactional", UserID: "u42", Title: "On its way"})
//	report, err := c.Receipt(ctx, accepted.Receipt)
//
// What fails for now is tried again until the context ends, always with the same id, so
// that a notification is pushed once however often it was sent (docs/gateway.md). It needs
// nothing else of the project; gateway/openapi.yaml is what both sides keep to.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options are what a Client is made of. URL is required, and Key or HTTP.
type Options struct {
	URL string // of the gateway: scheme and host, and a path before /v1 if there is one
	Key string // of the caller; "" where HTTP shows a certificate that the gateway knows
	// HTTP sends the requests; nil = one with 64 idle connections. Redirects are not
	// followed with it: a key is for one gateway.
	HTTP *http.Client
	// Attempt is how long one attempt may take; 0 = 15 s. The context bounds all of them
	// together.
	Attempt time.Duration
	// Backoff is the pause after the first attempt that failed, 0 = 100 ms. It doubles up to
	// MaxBackoff, 0 = 10 s. Of each pause half is by chance. One that the gateway asks for
	// (Retry-After) is kept in full.
	Backoff, MaxBackoff time.Duration
}

// Client calls a gateway. It is safe for concurrent use.
type Client struct {
	o     Options
	base  string
	http  http.Client
	pause func(ctx context.Context, d time.Duration) error // exchanged by tests
}

// New makes a Client. It connects with the first call.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		// It is not repeated: there may be a password in it, wherever it was misspelt.
		return nil, errors.New("address of the gateway: want http://HOST:PORT or https://HOST, without user, query and fragment")
	case o.Key == "" && o.HTTP == nil:
		return nil, errors.New("the key of the caller is required, or an HTTP client with its certificate")
	}
	c := &Client{o: o, base: strings.TrimSuffix(o.URL, "/"), pause: pause}
	if o.HTTP != nil {
		c.http = *o.HTTP
	} else {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64
		c.http.Transport = transport
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, d := range []struct {
		of     *time.Duration
		unless time.Duration
	}{{&c.o.Attempt, 15 * time.Second}, {&c.o.Backoff, 100 * time.Millisecond}, {&c.o.MaxBackoff, 10 * time.Second}} {
		if *d.of <= 0 {
			*d.of = d.unless
		}
	}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Problem is an answer that says why not (RFC 9457).
type Problem struct {
	Status     int     `json:"status"`
	Code       string  `json:"code"` // docs/gateway.md and docs/reasons.md have them all
	Title      string  `json:"title"`
	Detail     string  `json:"detail"`
	ID         string  `json:"id"` // of the notification it is about, if it is about one
	Errors     []Fault `json:"errors"`
	RetryAfter int     `json:"retry_after"` // seconds; 0 = a repeat has the same answer
}

// Fault is one thing that is wrong with a message.
type Fault struct {
	Pointer string `json:"pointer"` // JSON pointer to the member
	Detail  string `json:"detail"`
}

// Error implements error.
func (p *Problem) Error() string {
	text := fmt.Sprintf("%d %s", p.Status, p.Code)
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	for _, f := range p.Errors {
		if f.Pointer != "" {
			text += " (" + f.Pointer + ")"
		}
	}
	return text
}

// again reports whether a repeat may be answered otherwise. What a gateway is not configured
// for it stays so: 501 without a time to come again is for good.
func (p *Problem) again() bool {
	return p.RetryAfter > 0 || p.Status == http.StatusTooManyRequests || p.Status >= 500 && p.Status != http.StatusNotImplemented
}

// asking is one request that can be repeated.
type asking struct {
	method, path string
	contentType  string
	body         []byte
	said         any      // what ask makes the body of, as JSON; nil = the body is as it is
	ids          []string // of the notifications that are sent by it
	keyless      bool     // it is made without the key of the caller

	tag    string        // of what the caller has; empty = nothing
	longer time.Duration // than other requests it may take
	// Of the last answer:
	answered  string        // its tag
	unchanged bool          // it was 304
	after     time.Duration // when to ask again; 0 = it does not say
}

// maxAnswer bounds what is read of an answer: 1,000 reports have about a megabyte.
const maxAnswer = 32 << 20

// once makes one attempt. An answer with one of these statuses is read into to; every
// other is a *Problem.
func (c *Client) once(ctx context.Context, a *asking, to any, statuses ...int) error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Attempt+a.longer)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, a.method, c.base+a.path, bytes.NewReader(a.body))
	if err != nil {
		return err
	}
	if c.o.Key != "" && !a.keyless {
		req.Header.Set("Authorization", "Bearer "+c.o.Key)
	}
	if a.contentType != "" {
		req.Header.Set("Content-Type", a.contentType)
	}
	if a.tag != "" {
		req.Header.Set("If-None-Match", a.tag)
	}
	r, err := c.http.Do(req)
	if err != nil {
		// Without the URL, which may have a receipt in it.
		return fmt.Errorf("calling the gateway: %w", errors.Unwrap(err))
	}
	defer r.Body.Close()
	text, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading an answer: %w", err)
	case len(text) > maxAnswer:
		return &Problem{Status: r.StatusCode, Code: "answer_too_large", Detail: fmt.Sprintf("an answer of more than %d bytes", maxAnswer)}
	}
	for _, s := range statuses {
		if r.StatusCode == s {
			a.after = time.Duration(retryAfter(r.Header.Get("Retry-After"))) * time.Second
			if a.answered, a.unchanged = r.Header.Get("ETag"), s == http.StatusNotModified; a.unchanged {
				return nil
			}
			if err := json.Unmarshal(text, to); err != nil {
				return fmt.Errorf("reading an answer: %w", err)
			}
			return nil
		}
	}
	return problemOf(r, text)
}

// problemOf is the problem of an answer. It may come from something between us and the
// gateway, and be none.
func problemOf(r *http.Response, text []byte) *Problem {
	p := &Problem{}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/problem+json" || json.Unmarshal(text, p) != nil || p.Code == "" {
		p = &Problem{Code: "no_problem", Detail: "not an answer of a gateway: " + http.StatusText(r.StatusCode)}
	}
	p.Status = r.StatusCode
	if s := retryAfter(r.Header.Get("Retry-After")); s > 0 {
		p.RetryAfter = s
	}
	return p
}
