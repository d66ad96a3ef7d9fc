package apns

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/providers/exchange"
	"github.com/pushfleet/pushfleet/providers/feedback"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// Apple's servers.
const (
	ProductionURL = "https://api.push.apple.com"
	SandboxURL    = "https://api.sandbox.push.apple.com"
)

// The answer headers that are kept, by their place in Answer.Header. Those that announce a
// limit follow: Apple's do not, as far as is known.
const (
	answerID = iota
	answerDate
	answerRetryAfter
	answerLimits
)

// Options are the settings of a Client.
type Options struct {
	// Topic is the app's bundle id; suffixes of push types are added to it.
	Topic string
	// Environment is push.Production (the default) or push.Sandbox.
	Environment string
	// Tokens signs for the app's team. Clients of a team share it.
	Tokens *TokenSource
	// Pool is set up by the caller (lanes, connections, roots, time-outs),
	// except for AnswerHeaders, Unauthenticated, Outdated, Identity and Authorize. An
	// empty URL means Apple's server for Environment.
	Pool h2.Options
}

// Client sends to one app in one environment. Its lanes are
// pipeline.Providers that share its connections. It must be closed.
type Client struct {
	pool   *h2.Pool
	sender *exchange.Sender
	codec  *codec
}

// New checks the options and makes a Client. It does not connect yet.
func New(opt Options) (*Client, error) {
	c, err := newCodec(opt.Topic, opt.Tokens)
	if err != nil {
		return nil, fmt.Errorf("making APNs client: %w", err)
	}
	if opt.Pool.URL == "" {
		switch opt.Environment {
		case "", push.Production:
			opt.Pool.URL = ProductionURL
		case push.Sandbox:
			opt.Pool.URL = SandboxURL
		default:
			return nil, fmt.Errorf("making APNs client: environment %q", opt.Environment)
		}
	}
	opt.Pool.AnswerHeaders = append([]string{answerID: "apns-id", answerDate: "date", answerRetryAfter: "retry-after"}, calls.LimitHeaders()...)
	opt.Pool.Unauthenticated = unauthenticated
	opt.Pool.Outdated = outdated
	opt.Pool.Identity, opt.Pool.Authorize = opt.Tokens.identity, c.authorize
	c.refusal = calls.NewRefusal(opt.Pool.Log)
	pool, err := h2.NewPool(opt.Pool)
	if err != nil {
		return nil, fmt.Errorf("making APNs client: %w", err)
	}
	return &Client{pool: pool, sender: exchange.New(pool, c), codec: c}, nil
}

// Announced has tell hear what answers announce of a limit, where they do: that so many more
// are taken until its window ends, from now on. It is called on a connection's reader, and
// must not block.
func (c *Client) Announced(tell func(now time.Time, left int, ends time.Duration)) {
	c.codec.limits.Listen(tell)
}

// Lane returns the provider that sends through lane i of Options.Pool.Lanes.
func (c *Client) Lane(i int) pipeline.Provider { return c.sender.Lane(i) }

// Refused is Apple's word for refusing our key; empty = it does not, as far as we know.
func (c *Client) Refused() string { return c.codec.refusal.Word() }

// RefusedKey is which credential that is, and what an operator can do about it; empty while
// none is refused. Neither gives anything of it away.
func (c *Client) RefusedKey() (key, remedy string) {
	said := c.codec.refusal.Said()
	return said.Key, said.Remedy
}

// KeyChanged is called when Options.Tokens has another key: what was said of the
// former one is forgotten.
func (c *Client) KeyChanged() {
	c.codec.refusedSince.Store(0)
	c.codec.refusal.Clear()
}

// Stats returns the counters of the client's pool.
func (c *Client) Stats() h2.Stats { return c.pool.Stats() }

// Close ends the client as h2.Pool.Close does.
func (c *Client) Close(ctx context.Context) error { return c.pool.Close(ctx) }

// codec writes requests and reads answers for one topic.
type codec struct {
	tokens *TokenSource
	topics map[string][]byte // push type -> apns-topic
	guard  feedback.Guard
	limits calls.Limits
	// refusal is whether Apple refuses the key in use.
	refusal *calls.Refusal
	// refusedSince is when, for the first time since the last acceptance, a
	// token was refused as too old although it was renewed; UnixNano, 0 = not.
	refusedSince atomic.Int64
}

func newCodec(topic string, tokens *TokenSource) (*codec, error) {
	if tokens == nil {
		return nil, errors.New("no token source")
	}
	if topic == "" || len(topic) > 255 {
		return nil, errors.New("topic must have 1 to 255 bytes")
	}
	for i := 0; i < len(topic); i++ {
		if b := topic[i]; !isIdentifier(topic[i:i+1]) && b != '.' && b != '-' && b != '_' {
			return nil, errors.New("topic must be letters, digits, dots and hyphens")
		}
	}
	c := &codec{tokens: tokens, refusal: calls.NewRefusal(nil), topics: make(map[string][]byte, len(pushTypes))}
	for name, suffix := range pushTypes {
		c.topics[name] = []byte(topic + suffix)
	}
	return c, nil
}
