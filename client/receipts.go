package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Report is what became of a message.
type Report struct {
	Receipt     string    `json:"receipt"`
	ID          string    `json:"id"`
	Status      string    `json:"status"` // PENDING, SENDING, DELIVERED, INBOX, FAILED or UNKNOWN
	State       string    `json:"state"`  // in more detail
	Reason      string    `json:"reason"`
	Meaning     string    `json:"meaning"` // in words
	Final       bool      `json:"final"`   // nothing more happens
	Mode        string    `json:"mode"`
	ServiceType string    `json:"service_type"`
	Lane        string    `json:"lane"`
	App         string    `json:"app"`
	Receiver    Receiver  `json:"receiver"`
	AcceptedAt  time.Time `json:"accepted_at"`
	UpdatedAt   time.Time `json:"updated_at"` // of the newest state
	Devices     []Device  `json:"devices"`
	Events      []Event   `json:"events"` // what apps have reported, beside the status

	// Of a message to many receivers:
	Topic   string  `json:"topic"`   // to whose subscribers it is
	Segment string  `json:"segment"` // group/segment, in which its receivers are
	Fanout  *Fanout `json:"fanout"`  // how far it is; nil = it is none
}

// Receiver is whom it was for.
type Receiver struct {
	UserID string `json:"user_id"`
	Device string `json:"device"` // hash of the token
}

// Device is what became of it on one device.
type Device struct {
	Device     string    `json:"device"` // hash of the token
	Provider   string    `json:"provider"`
	Status     string    `json:"status"`
	State      string    `json:"state"`
	Reason     string    `json:"reason"`
	ProviderID string    `json:"provider_id"`
	At         time.Time `json:"at"`
	Meaning    string    `json:"meaning"`
}

// Receipt asks what became of a message.
func (c *Client) Receipt(ctx context.Context, receipt string) (*Report, error) {
	return ask[Report](ctx, c, "asking for a receipt", &asking{method: http.MethodGet, path: at("/v1/receipts/{}", receipt)}, http.StatusOK)
}

// MaxReceipts is how many receipts can be asked for at once.
const MaxReceipts = 1000

// queryAnswer is the answer to a query.
type queryAnswer struct {
	Results []struct {
		Report
		Problem *Problem `json:"problem"`
	} `json:"results"`
}

// Answer is what is known of one receipt: one of the two.
type Answer struct {
	Report  *Report
	Problem *Problem // such as no_receipt, or status_away: ask again after its RetryAfter
}

// Receipts asks what became of up to MaxReceipts messages. Answers are in the order of the
// receipts.
func (c *Client) Receipts(ctx context.Context, receipts []string) ([]Answer, error) {
	if len(receipts) == 0 || len(receipts) > MaxReceipts {
		return nil, fmt.Errorf("%d receipts, want 1 to %d", len(receipts), MaxReceipts)
	}
	query := &asking{method: http.MethodPost, path: "/v1/receipts:query", said: map[string][]string{"receipts": receipts}}
	a, err := ask[queryAnswer](ctx, c, "asking for receipts", query, http.StatusOK)
	switch {
	case err != nil:
		return nil, err
	case len(a.Results) != len(receipts):
		return nil, fmt.Errorf("asking for receipts: %d answers to %d receipts", len(a.Results), len(receipts))
	}
	answers := make([]Answer, len(receipts))
	for i := range a.Results {
		if answers[i].Problem = a.Results[i].Problem; answers[i].Problem == nil {
			answers[i].Report = &a.Results[i].Report
		}
	}
	return answers, nil
}
