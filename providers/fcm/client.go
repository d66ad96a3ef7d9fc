package fcm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/feedback"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// DefaultURL is Google's server.
const DefaultURL = "https://fcm.googleapis.com"

// Google's front ends grant 100 streams a connection and end it on the next.
const streams = 100

// The answer headers that are kept, by their place in Answer.Header. Those that announce a
// limit follow.
const (
	answerRetryAfter = iota
	answerDate
	answerLimits
)

// Options are the settings of a Client.
type Options struct {
	// ServiceAccount is the JSON file of a Google service account.
	ServiceAccount []byte
	// ProjectID is the Firebase project; empty = the service account's own.
	ProjectID string
	// Pool is set up by the caller (lanes, connections, roots, time-outs),
	// except for AnswerHeaders and Unauthenticated. An empty URL means DefaultURL;
	// zero Connections mean 20, zero StreamsPerConnection 100.
	Pool h2.Options
	// HTTP is used for the token endpoint. Nil = HTTP/2 with Pool.TLS, over a
	// connection of its own for each token; an endpoint that does not speak it,
	// or stands behind a proxy, needs a client here. An endpoint without TLS (of
	// a test) has net/http's by default.
	HTTP *http.Client
}

// Client sends to one app of one project. Its lanes are pipeline.Providers
// that share its connections. It must be closed.
type Client struct {
	pool   *h2.Pool
	tokens *tokenKeeper
	sender *exchange.Sender
	codec  *codec
	opt    Options // its ServiceAccount is that of the start
}

// New checks the options, and starts to fetch an access token. It does not
// wait for it.
func New(opt Options) (*Client, error) {
	a, err := readAccount(opt.ServiceAccount)
	if err != nil {
		return nil, fmt.Errorf("making FCM client: %w", err)
	}
	if opt.ProjectID == "" {
		opt.ProjectID = a.ProjectID
	}
	if err := checkProject(opt.ProjectID); err != nil {
		return nil, fmt.Errorf("making FCM client: %w", err)
	}
	if err := checkKey(a.PrivateKey); err != nil {
		return nil, fmt.Errorf("making FCM client: %w", err)
	}
	if opt.Pool.URL == "" {
		opt.Pool.URL = DefaultURL
	}
	if opt.Pool.Connections == 0 {
		opt.Pool.Connections = 20
	}
	if opt.Pool.StreamsPerConnection == 0 {
		opt.Pool.StreamsPerConnection = streams
	}
	opt.Pool.AnswerHeaders = append([]string{answerRetryAfter: "retry-after", answerDate: "date"}, calls.LimitHeaders()...)
	opt.Pool.Unauthenticated = nil // Google has no rule of one stream, and many of its 403 are about a token
	fetch, err := opt.fetch(a)
	if err != nil {
		return nil, fmt.Errorf("making FCM client: %w", err)
	}
	pool, err := h2.NewPool(opt.Pool)
	if err != nil {
		return nil, fmt.Errorf("making FCM client: %w", err)
	}
	c := &Client{pool: pool, tokens: startKeeper(fetch), opt: opt}
	c.codec = &codec{tokens: c.tokens, path: []byte("/v1/projects/" + opt.ProjectID + "/messages:send"), refusal: calls.NewRefusal(opt.Pool.Log)}
	name := a.name()
	c.codec.key.Store(&name)
	c.codec.asked.Store(&name)
	c.sender = exchange.New(pool, c.codec)
	return c, nil
}

// SetAccount puts another service account, or another key of it, in use for the same
// project. The access token there is stays in use until the new account has one;
// renewed, if set, is called then, once, and must not block. After an error the former
// account stays in use. The error holds nothing of the file.
func (c *Client) SetAccount(file []byte, renewed func()) error {
	a, err := readAccount(file)
	if err == nil {
		err = checkKey(a.PrivateKey)
	}
	if err != nil {
		return fmt.Errorf("changing FCM account: %w", err)
	}
	fetch, err := c.opt.fetch(a)
	if err != nil {
		return fmt.Errorf("changing FCM account: %w", err)
	}
	name := a.name()
	c.codec.asked.Store(&name)
	c.tokens.exchange(fetch, func() {
		c.codec.key.Store(&name)
		c.codec.refusal.Clear()
		if renewed != nil {
			renewed()
		}
	})
	return nil
}

// Refused is Google's word for refusing our account; empty = it does not, as far as we
// know.
func (c *Client) Refused() string {
	if c.tokens.faulty() {
		return c.tokens.failure().Error()
	}
	return c.codec.refusal.Word()
}

// RefusedKey is which credential that is, and what an operator can do about it; empty while
// none is refused. Neither gives anything of it away.
func (c *Client) RefusedKey() (key, todo string) {
	if c.tokens.faulty() { // also while there still is a token of the account before
		return *c.codec.asked.Load(), remedy
	}
	said := c.codec.refusal.Said()
	return said.Key, said.Remedy
}

// fetch says how access tokens are fetched.
func (opt *Options) fetch(a account) (fetchFunc, error) {
	switch {
	case opt.HTTP != nil:
		return fetchOver(a, opt.HTTP), nil
	case strings.HasPrefix(a.TokenURI, "http://"):
		return fetchOver(a, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}), nil
	}
	return fetchAlone(a, &opt.Pool)
}

// Announced has tell hear what answers announce of a limit, where they do: that so many more
// are taken until its window ends, from now on. It is called on a connection's reader, and
// must not block.
func (c *Client) Announced(tell func(now time.Time, left int, ends time.Duration)) {
	c.codec.limits.Listen(tell)
}

// Lane returns the provider that sends through lane i of Options.Pool.Lanes.
// Its Submit waits for the end of the first attempt to get an access token.
func (c *Client) Lane(i int) pipeline.Provider { return provider{c.tokens.first, c.sender.Lane(i)} }

// Stats returns the counters of the client's pool.
func (c *Client) Stats() h2.Stats { return c.pool.Stats() }

// TokenError is why there is no new access token, or nil when the latest
// attempt succeeded or none has ended. It holds no credential.
func (c *Client) TokenError() error { return c.tokens.failure() }

// Close ends the client as h2.Pool.Close does, and a token fetch that is under
// way at once.
func (c *Client) Close(ctx context.Context) error {
	err := c.tokens.close(ctx) // first: it gives back what it has parked
	return errors.Join(err, c.pool.Close(ctx))
}

type provider struct {
	ready <-chan struct{}
	pipeline.Provider
}

// Submit implements pipeline.Provider.
func (p provider) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	select {
	case <-p.ready:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return p.Provider.Submit(ctx, ds, done)
}

// codec writes requests and reads answers for one project.
type codec struct {
	tokens *tokenKeeper
	path   []byte
	guard  feedback.Guard
	limits calls.Limits
	// refusal is whether Google refuses the account in use, at either of its servers.
	refusal *calls.Refusal
	key     atomic.Pointer[string] // the name of the account that the token in use was got with
	asked   atomic.Pointer[string] // the name of the account that tokens are asked for with: another one until there is its first
}

// halt stops the route because Google refuses our account, and says so.
func (c *codec) halt(result *push.Result) {
	result.Scope, result.Halt, result.After = push.ScopeRoute, true, shortest
	c.note(result.Reason, *c.key.Load())
}

// remedy is what to do about a refusal.
const remedy = "put a service account of the project into service_account_file that has the role to send (cloudmessaging.messages.create) and a key that is not deleted"

func (c *codec) note(word, key string) { c.refusal.Note(word, key, remedy) }

// authError is a refusal of the token endpoint: its status and OAuth error
// code.
type authError struct {
	status int
	code   string
}

func (e *authError) Error() string {
	s := "fetching access token: HTTP " + strconv.Itoa(e.status)
	if printable(e.code) && len(e.code) <= 64 {
		s += " " + e.code
	}
	return s
}

// faulty reports whether the latest fetch failed because of the credentials
// rather than the network.
func (k *tokenKeeper) faulty() bool {
	var refusal *authError
	return errors.As(k.failure(), &refusal) && refusal.status >= 400 && refusal.status < 500 && refusal.status != 429
}
