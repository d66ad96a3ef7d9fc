package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
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
	var report *Report
	err := c.repeat(ctx, func() []string { return nil }, func() error {
		report = &Report{}
		return c.once(ctx, &asking{method: http.MethodGet, path: "/v1/receipts/" + url.PathEscape(receipt)}, report, http.StatusOK)
	})
	if err != nil {
		return nil, fmt.Errorf("asking for a receipt: %w", err)
	}
	return report, nil
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
	body, err := json.Marshal(map[string][]string{"receipts": receipts})
	if err != nil {
		return nil, fmt.Errorf("asking for receipts: %w", err)
	}
	var a queryAnswer
	err = c.repeat(ctx, func() []string { return nil }, func() error {
		a = queryAnswer{}
		return c.once(ctx, &asking{method: http.MethodPost, path: "/v1/receipts:query", contentType: "application/json", body: body}, &a, http.StatusOK)
	})
	if err == nil && len(a.Results) != len(receipts) {
		err = fmt.Errorf("%d answers to %d receipts", len(a.Results), len(receipts))
	}
	if err != nil {
		return nil, fmt.Errorf("asking for receipts: %w", err)
	}
	answers := make([]Answer, len(receipts))
	for i := range a.Results {
		if answers[i].Problem = a.Results[i].Problem; answers[i].Problem == nil {
			answers[i].Report = &a.Results[i].Report
		}
	}
	return answers, nil
}
