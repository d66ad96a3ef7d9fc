package client

import (
	"context"
	"net/http"
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
	path := at("/v1/users/{}/messages", user) + query(map[string]string{"app": q.App, "after": q.After}, map[string]int{"days": q.Days, "limit": q.Limit})
	return ask[UserMessages](ctx, c, "reading messages of a user", &asking{method: http.MethodGet, path: path}, http.StatusOK)
}
