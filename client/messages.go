package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Message is a notification to a user or a device (docs/messages.md). App, ServiceType,
// and UserID or Device are required.
type Message struct {
	// ID names the notification for ever; empty = Send and SendBatch mint a UUIDv7 and put
	// it here, so that the same Message sent again is the same notification.
	ID          string `json:"id,omitempty"`
	App         string `json:"app"`
	ServiceType string `json:"service_type"`
	Mode        string `json:"mode,omitempty"` // at_least_once, at_most_once or exactly_once; empty = the first lane of the service type
	UserID      string `json:"user_id,omitempty"`
	Device      *Token `json:"device,omitempty"`

	Type     string `json:"type,omitempty"`
	Campaign string `json:"campaign,omitempty"` // what it is a part of, at most 64 bytes
	Priority string `json:"priority,omitempty"`
	PushType string `json:"push_type,omitempty"`

	Title       string            `json:"title,omitempty"`
	Body        string            `json:"body,omitempty"`
	Image       string            `json:"image,omitempty"`
	Video       string            `json:"video,omitempty"`
	Sound       string            `json:"sound,omitempty"`
	Category    string            `json:"category,omitempty"`
	ThreadID    string            `json:"thread_id,omitempty"`
	Locale      string            `json:"locale,omitempty"`
	Badge       *int32            `json:"badge,omitempty"` // 0 clears it
	Data        map[string]string `json:"data,omitempty"`
	CollapseKey string            `json:"collapse_key,omitempty"`
	Clicks      bool              `json:"clicks,omitempty"` // it gets a token, pf_click in its data, for ReportEvent
	ExpiresAt   time.Time         `json:"expires_at,omitzero"`
	APNS        json.RawMessage   `json:"apns,omitempty"` // raw overrides
	FCM         json.RawMessage   `json:"fcm,omitempty"`
}

// Token is one device.
type Token struct {
	Platform    string `json:"platform"` // apns or fcm
	Token       string `json:"token"`
	Environment string `json:"environment,omitempty"`
}

// Accepted is what is known of a message that Kafka has.
type Accepted struct {
	ID          string    `json:"id"`
	Receipt     string    `json:"receipt"` // to ask with
	Status      string    `json:"status"`
	Mode        string    `json:"mode"`
	ServiceType string    `json:"service_type"`
	Lane        string    `json:"lane"`
	AcceptedAt  time.Time `json:"accepted_at"`
	Replayed    bool      `json:"replayed"` // it was accepted before, and this is the first receipt again
}

// Send sends a message, which gets an id if it has none, and returns when it is durable. A
// *Problem says why it is refused; a *GivenUpError, that ctx ended while it was not known
// whether it is accepted.
func (c *Client) Send(ctx context.Context, m *Message) (*Accepted, error) {
	return c.send(ctx, "/v1/messages", m)
}

func (c *Client) send(ctx context.Context, path string, m *Message) (*Accepted, error) {
	if err := name(m); err != nil {
		return nil, err
	}
	return ask[Accepted](ctx, c, "sending "+m.ID, &asking{method: http.MethodPost, path: path, said: m, ids: []string{m.ID}}, http.StatusAccepted)
}

// name gives a message an id if it has none.
func name(m *Message) error {
	if m.ID != "" {
		return nil
	}
	id, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("making an id: %w", err)
	}
	m.ID = id.String()
	return nil
}

// Result is what became of one message of a batch: one of the two.
type Result struct {
	Accepted *Accepted
	Err      error // a *Problem, or a *GivenUpError
}

// SendBatch sends up to MaxBatch messages, which get ids if they have none, in one request, and
// those that were not accepted for now again, until each is accepted or refused or ctx
// ends. Results are in the order of the messages. The error is nil if all were
// accepted, or else the first of theirs; a batch that cannot be sent at all has no results.
func (c *Client) SendBatch(ctx context.Context, ms []*Message) ([]Result, error) {
	for _, m := range ms[:min(len(ms), MaxBatch)] {
		if m == nil {
			return nil, errors.New("a message of a batch is nil")
		}
		if err := name(m); err != nil {
			return nil, err
		}
	}
	lines, err := linesOf(ms, "messages")
	if err != nil {
		return nil, err
	}
	ids := func(open []int) []string {
		all := make([]string, len(open))
		for k, i := range open {
			all[k] = ms[i].ID
		}
		return all
	}
	a := asking{method: http.MethodPost, path: "/v1/messages/batch"}
	outcomes, err := sendBatch[Accepted](ctx, c, a, lines, ids, http.StatusAccepted, http.StatusMultiStatus)
	if err != nil {
		return nil, fmt.Errorf("sending %d messages: %w", len(ms), err)
	}
	results := make([]Result, len(ms))
	for i, o := range outcomes {
		if results[i] = (Result{o.done, o.err}); o.err != nil && err == nil {
			err = fmt.Errorf("sending %s: %w", ms[i].ID, o.err)
		}
	}
	return results, err
}
