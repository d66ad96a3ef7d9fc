package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
}

// Send sends a message, which gets an id if it has none, and returns when it is durable. A
// *Problem says why it is refused; a *GivenUpError, that ctx ended while it was not known
// whether it is accepted.
func (c *Client) Send(ctx context.Context, m *Message) (*Accepted, error) {
	return c.send(ctx, "/v1/messages", m)
}

// Broadcast sends a message to all users of its App as Send does one to a single user: UserID
// and Device must be empty, and the ID, if it has one, a UUIDv7. It needs a key with the right
// broadcast. The receipt says how far it is.
func (c *Client) Broadcast(ctx context.Context, m *Message) (*Accepted, error) {
	if m.App == "" {
		return nil, errors.New("a message to all users of an app names no app")
	}
	return c.send(ctx, "/v1/apps/"+url.PathEscape(m.App)+"/messages", m)
}

// BroadcastToSegment sends a message, as Broadcast does, to those users of its App who are in a
// segment of a group.
func (c *Client) BroadcastToSegment(ctx context.Context, group, segment string, m *Message) (*Accepted, error) {
	if m.App == "" || group == "" || segment == "" {
		return nil, errors.New("a message to users in a segment names no app, or no segment")
	}
	return c.send(ctx, "/v1/apps/"+url.PathEscape(m.App)+"/segments/"+url.PathEscape(group)+"/"+url.PathEscape(segment)+"/messages", m)
}

func (c *Client) send(ctx context.Context, path string, m *Message) (*Accepted, error) {
	if err := name(m); err != nil {
		return nil, err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", m.ID, err)
	}
	var accepted *Accepted
	err = c.repeat(ctx, func() []string { return []string{m.ID} }, func() error {
		accepted = &Accepted{}
		return c.once(ctx, &asking{method: http.MethodPost, path: path, contentType: "application/json", body: body}, accepted, http.StatusAccepted)
	})
	if err != nil {
		return nil, fmt.Errorf("sending %s: %w", m.ID, err)
	}
	return accepted, nil
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

// Bounds of a batch.
const (
	MaxBatch      = 1000    // messages
	maxBatchBytes = 4 << 20 // as gateways have it by default
)

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
	if len(ms) == 0 || len(ms) > MaxBatch {
		return nil, fmt.Errorf("%d messages, want 1 to %d", len(ms), MaxBatch)
	}
	lines, results := make([][]byte, len(ms)), make([]Result, len(ms))
	size := 0
	open := make([]int, len(ms)) // the numbers of those without a result
	for i, m := range ms {
		err := name(m)
		if err == nil {
			lines[i], err = json.Marshal(m)
		}
		if err != nil {
			return nil, fmt.Errorf("message %s: %w", m.ID, err)
		}
		open[i], size = i, size+len(lines[i])+1
	}
	if size > maxBatchBytes {
		return nil, fmt.Errorf("a batch of %d bytes, want at most %d", size, maxBatchBytes)
	}
	ids := func() []string {
		all := make([]string, len(open))
		for k, i := range open {
			all[k] = ms[i].ID
		}
		return all
	}
	a := asking{method: http.MethodPost, path: "/v1/messages/batch", contentType: "application/x-ndjson"}
	err := c.repeat(ctx, ids, func() (err error) {
		open, err = c.sendLines(ctx, a, lines, open, results, http.StatusAccepted, http.StatusMultiStatus)
		return err
	})
	if len(open) == len(ms) && err != nil && !givenUp(err) {
		return nil, fmt.Errorf("sending %d messages: %w", len(ms), err)
	}
	for _, i := range open {
		results[i].Err = err
	}
	for i := range results {
		if results[i].Err != nil {
			return results, fmt.Errorf("sending %s: %w", ms[i].ID, results[i].Err)
		}
	}
	return results, nil
}

func givenUp(err error) bool {
	var g *GivenUpError
	return errors.As(err, &g)
}

// batchAnswer is the answer to a batch.
type batchAnswer struct {
	Results []struct {
		Accepted
		Line    int      `json:"line"`
		Problem *Problem `json:"problem"`
	} `json:"results"`
}

// sendLines sends some lines once, as the body of what is asked, and notes the results that are
// final. It returns those that are still open, and why.
func (c *Client) sendLines(ctx context.Context, ask asking, lines [][]byte, open []int, results []Result, good ...int) (still []int, err error) {
	var body bytes.Buffer
	for _, i := range open {
		body.Write(lines[i])
		body.WriteByte('\n')
	}
	ask.body = body.Bytes()
	var a batchAnswer
	if err := c.once(ctx, &ask, &a, good...); err != nil {
		return open, err
	}
	if len(a.Results) != len(open) {
		return open, fmt.Errorf("%d results of %d lines", len(a.Results), len(open))
	}
	for k, i := range open {
		switch r := &a.Results[k]; {
		case r.Problem == nil:
			accepted := r.Accepted
			results[i].Accepted = &accepted
		case r.Problem.again():
			still = append(still, i)
			if p, is := err.(*Problem); !is || r.Problem.RetryAfter > p.RetryAfter {
				err = r.Problem
			}
		default:
			results[i].Err = r.Problem
		}
	}
	return still, err
}
