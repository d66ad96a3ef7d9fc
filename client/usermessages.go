package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// UserMessages are messages that a user was meant to get, the newest first.
type UserMessages struct {
	UserID   string        `json:"user_id"`
	Since    time.Time     `json:"since"` // older ones are not looked for
	Messages []UserMessage `json:"messages"`
	Next     string        `json:"next"` // for After; empty = there are no more
}

// UserMessage is one of them, with what became of it so far.
type UserMessage struct {
	ID        string    `json:"id"`
	App       string    `json:"app"`
	SenderID  string    `json:"sender_id"`
	Type      string    `json:"type"`
	Lane      string    `json:"lane"`
	At        time.Time `json:"at"`     // the time in its id, or when its first record was written
	Status    string    `json:"status"` // PENDING, SENDING, DELIVERED, INBOX, FAILED or UNKNOWN
	Reason    string    `json:"reason"`
	Meaning   string    `json:"meaning"`
	Final     bool      `json:"final"` // nothing more happens to it
	UpdatedAt time.Time `json:"updated_at"`
	Devices   []Device  `json:"devices"`
}

// UserMessagesQuery says which; what is zero is left to the gateway.
type UserMessagesQuery struct {
	App   string // of this app alone
	Days  int    // not older than so many
	Limit int    // how many at most, 1 to 100
	After string // the Next of the page before
}

// UserMessages asks which messages a user was meant to get, where lanes note that. The key
// needs the right read; or it is a token of the user.
func (c *Client) UserMessages(ctx context.Context, user string, q UserMessagesQuery) (*UserMessages, error) {
	values := url.Values{}
	for name, text := range map[string]string{"app": q.App, "after": q.After} {
		if text != "" {
			values.Set(name, text)
		}
	}
	for name, n := range map[string]int{"days": q.Days, "limit": q.Limit} {
		if n != 0 {
			values.Set(name, strconv.Itoa(n))
		}
	}
	a := &asking{method: http.MethodGet, path: "/v1/users/" + url.PathEscape(user) + "/messages?" + values.Encode()}
	var messages *UserMessages
	err := c.repeat(ctx, func() []string { return nil }, func() error {
		messages = &UserMessages{}
		return c.once(ctx, a, messages, http.StatusOK)
	})
	if err != nil {
		return nil, fmt.Errorf("reading messages of a user: %w", err)
	}
	return messages, nil
}
