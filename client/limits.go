package client

import (
	"context"
	"net/http"
	"time"
)

// SenderLimits are how much the key's sender has sent in each window that has a limit.
type SenderLimits struct {
	Sender string        `json:"sender"`
	Shared bool          `json:"shared"` // Redis knows what all gateways have sent; else it is this one's part
	Limits []SenderLimit `json:"limits"` // none = there is no limit
}

// SenderLimit is one of them.
type SenderLimit struct {
	Name      string    `json:"name"`   // second, minute, hour, day or recipients
	Window    int       `json:"window"` // in seconds
	Limit     int       `json:"limit"`
	Used      int       `json:"used"`
	Remaining int       `json:"remaining"`
	Reset     int       `json:"reset"` // seconds until the window ends
	ResetAt   time.Time `json:"reset_at"`
}

// SenderLimits reads how far the key's sender has come. Any key may ask, and asking costs
// nothing.
func (c *Client) SenderLimits(ctx context.Context) (*SenderLimits, error) {
	return ask[SenderLimits](ctx, c, "reading the sender's limits", &asking{method: http.MethodGet, path: at("/v1/limits")}, http.StatusOK)
}

// UnsubscribeLink makes a link for a mail, by which a user opts out of a type of messages with
// one click (RFC 8058): a path, behind the address at which the gateway is reached from outside.
// It has no end. The key needs the right users.
func (c *Client) UnsubscribeLink(ctx context.Context, user, app, messageType string) (path string, err error) {
	said := struct {
		App  string `json:"app"`
		Type string `json:"type"`
	}{app, messageType}
	type made struct {
		Path string `json:"path"`
	}
	link, err := ask[made](ctx, c, "making a link to unsubscribe", &asking{method: http.MethodPost, path: at("/v1/users/{}/unsubscribe-links", user), said: said}, http.StatusCreated)
	if err != nil {
		return "", err
	}
	return link.Path, nil
}
