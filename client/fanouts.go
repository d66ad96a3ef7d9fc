package client

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// SendToTopic sends a message to all subscribers of a topic as Send does one to a single user:
// UserID and Device must be empty, and the ID, if it has one, a UUIDv7. App and ServiceType may
// be empty, as they are the topic's, and Priority is at most the topic's. The key needs the
// right send. The receipt says how far it is. Problems are no_such_topic and topic_closed,
// beside those of Send; a confidential topic takes messages where gateways have keys of
// their texts (else not_configured).
func (c *Client) SendToTopic(ctx context.Context, topic string, m *Message) (*Accepted, error) {
	if topic == "" {
		return nil, errors.New("a message to the subscribers of a topic names no topic")
	}
	return c.send(ctx, at("/v1/topics/{}/messages", topic), m)
}

// Broadcast sends a message to all users of its App as Send does one to a single user: UserID
// and Device must be empty, and the ID, if it has one, a UUIDv7. It needs a key with the right
// broadcast. The receipt says how far it is.
func (c *Client) Broadcast(ctx context.Context, m *Message) (*Accepted, error) {
	if m.App == "" {
		return nil, errors.New("a message to all users of an app names no app")
	}
	return c.send(ctx, at("/v1/apps/{}/messages", m.App), m)
}

// BroadcastToSegment sends a message, as Broadcast does, to those users of its App who are in a
// segment of a group.
func (c *Client) BroadcastToSegment(ctx context.Context, group, segment string, m *Message) (*Accepted, error) {
	if m.App == "" || group == "" || segment == "" {
		return nil, errors.New("a message to users in a segment names no app, or no segment")
	}
	return c.send(ctx, at("/v1/apps/{}/segments/{}/{}/messages", m.App, group, segment), m)
}

// Fanout is how far a message to many receivers is.
type Fanout struct {
	State    string           `json:"state"`    // accepted, running, paused, cancelled or ended
	Audience string           `json:"audience"` // topic, app or segment; "" = it has not begun
	Chunks   Chunks           `json:"chunks"`
	Emitted  int64            `json:"emitted"` // receivers who have a notification in the lane, of the parts that are done
	Skipped  map[string]int64 `json:"skipped"` // members of the audience who get none, by the reason
}

// Chunks are the parts of an audience.
type Chunks struct {
	All  int `json:"all"` // 0 = it has not begun
	Done int `json:"done"`
}

// Order is what was ordered about a message to many receivers.
type Order struct {
	ID    string `json:"id"`    // of the message, as the caller knows it
	Order string `json:"order"` // cancelled, paused or running
}

// CancelFanout ends a message to many receivers as it is: who has a notification keeps it, and
// nobody else gets one. This cannot be undone. id is the receipt; or, once the message has
// begun, the id that its notifications have as campaign. The key needs the right send or
// broadcast, and the sender of the message or the right admin. Cancelled again, it stays so. A
// *Problem with fanout_over says that it has ended before.
func (c *Client) CancelFanout(ctx context.Context, id string) (*Order, error) {
	return c.order(ctx, id, "cancel")
}

// PauseFanout lets a message to many receivers wait, which it does within some thousand
// receivers of each part. Its arguments and rights are those of CancelFanout. A repeat does no
// harm, unless somebody has let it go on since the first attempt: then it waits again. A
// *Problem with fanout_over says that it has ended or is cancelled.
func (c *Client) PauseFanout(ctx context.Context, id string) (*Order, error) {
	return c.order(ctx, id, "pause")
}

// ResumeFanout lets a paused message to many receivers go on where it was, within about ten
// seconds. It is as PauseFanout is, whose order a repeat may undo.
func (c *Client) ResumeFanout(ctx context.Context, id string) (*Order, error) {
	return c.order(ctx, id, "resume")
}

func (c *Client) order(ctx context.Context, id, what string) (*Order, error) {
	a := &asking{method: http.MethodPost, path: at("/v1/messages/{}/{}", id, what)}
	return ask[Order](ctx, c, "ordering a message to "+what, a, http.StatusAccepted)
}

// ReceiverCounts are what became of the receivers of a message to many.
type ReceiverCounts struct {
	ID      string `json:"id"` // of the message
	Chunks  Chunks `json:"chunks"`
	Emitted int64  `json:"emitted"` // receivers who have a notification in the lane, of the parts that are done
	Counted int64  `json:"counted"` // of how many of them the states were read
	Whole   bool   `json:"whole"`   // they are all whom these parts have reached; else a sample
	// States are how many of the counted are in each: PENDING where no worker has finished with
	// it, UNKNOWN where there is no state, and others as of Report.State.
	States map[string]int64 `json:"states"`
	At     time.Time        `json:"at"` // when they were counted
}

// ReceiverCounts counts what became of the receivers of a message to many, by state: of up to
// about 1,000, of more of a sample. A count serves for five seconds. id is that of
// CancelFanout; the key needs the right read, and the sender of the message or the right admin.
// A *Problem with no_receipt says that there is no such message, and with gone, that what became
// of it is not kept any more.
func (c *Client) ReceiverCounts(ctx context.Context, id string) (*ReceiverCounts, error) {
	return ask[ReceiverCounts](ctx, c, "counting receivers", &asking{method: http.MethodGet, path: at("/v1/messages/{}/counts", id)}, http.StatusOK)
}
