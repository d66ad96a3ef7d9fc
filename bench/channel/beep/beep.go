// Package beep is the provider of a platform that nobody has: pagers, which an
// operator's gateway calls. The test of bench/channel puts it into the fleet as
// DESIGN.md ("How a channel is added") says, in the place of providers/beep.
package beep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/account"
	"github.com/pushfleet/pushfleet/providers/calls"
	"github.com/pushfleet/pushfleet/push"
)

// What the gateway may answer, besides 200.
const (
	noSuchPager = "NoSuchPager" // 410
	badKey      = "BadKey"      // 401
	busy        = "Busy"        // 503
	refused     = "Refused"     // anything else
)

// Reasons are what the gateway is known to answer.
func Reasons() []string { return []string{noSuchPager, badKey, busy, refused} }

// atOnce is how many calls are under way at a time.
const atOnce = 16

// Client calls the gateway of one account. It is safe for concurrent use.
type Client struct {
	url, key string
	http     *http.Client
	calls    *calls.Caller
}

// Open needs the settings url and key_file.
func Open(a account.Account) (*Client, error) {
	if a.Settings["url"] == "" {
		return nil, errors.New("url: must not be empty")
	}
	if a.Secrets["key_file"] == "" {
		return nil, errors.New("key_file: must not be empty")
	}
	c := &Client{url: a.Settings["url"], key: a.Secrets["key_file"],
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: atOnce}}}
	c.calls = calls.NewCaller(atOnce, c.send)
	return c, nil
}

// Lane is the provider of each lane: all wait for the same places.
func (c *Client) Lane(int) pipeline.Provider { return c.calls }

// Close waits for the calls under way.
func (c *Client) Close(context.Context) error {
	c.calls.Wait()
	c.http.CloseIdleConnections()
	return nil
}

func (c *Client) send(ctx context.Context, d *pipeline.Delivery) push.Result {
	body, err := json.Marshal(map[string]string{"pager": d.Device.Token, "id": d.Item.ID, "text": d.Item.Title})
	if err != nil {
		return push.Result{Class: push.Refused, Local: true, Reason: string(push.InvalidMessage)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return calls.NotConnected()
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := c.http.Do(req)
	if err != nil {
		return calls.Unanswered(err)
	}
	_ = resp.Body.Close() // its status says all
	return read(resp)
}

// read says what an answer means.
func read(resp *http.Response) push.Result {
	switch resp.StatusCode {
	case http.StatusOK:
		return push.Result{Class: push.Delivered, Certainty: push.Accepted, ProviderID: resp.Header.Get("Call-Id")}
	case http.StatusGone:
		return push.Result{Class: push.Gone, Reason: noSuchPager}
	case http.StatusUnauthorized:
		return push.Result{Class: push.Again, Scope: push.ScopeRoute, Halt: true, Reason: badKey}
	case http.StatusServiceUnavailable:
		return push.Result{Class: push.Again, Scope: push.ScopeDevice, Reason: busy}
	}
	return push.Result{Class: push.Refused, Reason: refused}
}
