package client

import (
	"context"
	"net/http"
	"time"
)

// Why is what a message came to for one user, and by which steps.
type Why struct {
	ID           string        `json:"id"` // of the message
	UserID       string        `json:"user_id"`
	Notification string        `json:"notification"` // id of the user's own; "" = there is none
	Status       string        `json:"status"`       // as of Report; or NOT_SENT, where it became no notification
	Reason       string        `json:"reason"`
	Meaning      string        `json:"meaning"` // in words
	Final        bool          `json:"final"`   // nothing more happens
	Steps        []Step        `json:"steps"`   // in the order in which they decide
	AskAgain     time.Duration `json:"-"`       // after which more may be known, as the gateway reckons; 0 = there is no need
}

// Step is one thing that decides about a user.
type Step struct {
	Step    string    `json:"step"` // message, subscription, audience, chunk, receiver, state or reported
	State   string    `json:"state"`
	Reason  string    `json:"reason"`
	Device  string    `json:"device"` // hash of the token
	At      time.Time `json:"at"`     // zero = it has no time
	Meaning string    `json:"meaning"`
}

// WhyRecipient asks why a user got a message, or not. id is the receipt; of a message to many
// receivers that has begun also the id that its notifications have as campaign; and with the
// right admin any id. The key needs the right read, and the sender of the message or the right
// admin. A *Problem with no_receipt says that there is no such message, and with gone, that
// what became of it is not kept any more.
func (c *Client) WhyRecipient(ctx context.Context, id, user string) (*Why, error) {
	a := &asking{method: http.MethodGet, path: at("/v1/messages/{}/recipients/{}", id, user)}
	why, err := ask[Why](ctx, c, "asking about a recipient", a, http.StatusOK)
	if err != nil {
		return nil, err
	}
	why.AskAgain = a.after
	return why, nil
}
