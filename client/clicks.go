package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// What apps report of a notification.
const (
	Clicked      = "CLICKED"
	Unsubscribed = "UNSUBSCRIBED" // the user wants no more of its type
)

// Event is what an app has reported of a notification.
type Event struct {
	Event string    `json:"event"`
	At    time.Time `json:"at"` // when it was first reported
}

// ReportEvent reports Clicked or Unsubscribed by the token that a notification has in its
// data as pf_click. Reported again, it changes nothing. The Client's key is not needed for
// it, and is not sent.
func (c *Client) ReportEvent(ctx context.Context, token, event string) error {
	a := &asking{method: http.MethodPost, path: "/v1/events", said: EventReport{token, event}, keyless: true}
	_, err := ask[struct{}](ctx, c, "reporting an event", a, http.StatusOK)
	return err
}

// EventReport is what an app reports of one notification: Clicked or Unsubscribed, by its token.
type EventReport struct {
	Token string `json:"token"`
	Event string `json:"event"`
}

// ReportEvents is ReportEvent for up to MaxBatch reports in one request. Those that were not
// taken for now are sent again, until ctx ends. errs are in the order of the reports, each nil, a
// *Problem or a *GivenUpError; err is the first of them, or says why nothing was reported, and
// then there are no errs.
func (c *Client) ReportEvents(ctx context.Context, reports []EventReport) (errs []error, err error) {
	lines, err := linesOf(reports, "reports")
	if err != nil {
		return nil, err
	}
	a := asking{method: http.MethodPost, path: "/v1/events/batch", keyless: true}
	outcomes, err := sendBatch[struct{}](ctx, c, a, lines, func([]int) []string { return nil }, http.StatusOK, http.StatusMultiStatus)
	if err != nil {
		return nil, fmt.Errorf("reporting %d events: %w", len(reports), err)
	}
	errs = make([]error, len(reports))
	for i, o := range outcomes {
		if errs[i] = o.err; o.err != nil && err == nil {
			err = fmt.Errorf("reporting event %d: %w", i, o.err)
		}
	}
	return errs, err
}

// Clicks are how many notifications a user has clicked.
type Clicks struct {
	Sender string       `json:"sender"` // whose notifications are counted; "" = those of all
	From   string       `json:"from"`   // the first day, as 2026-11-26
	To     string       `json:"to"`     // today, UTC
	Counts []ClickCount `json:"counts"` // the latest day first
	More   bool         `json:"more"`   // there are so many that the counts are too low
}

// ClickCount is what was reported of the notifications of a type and a day.
type ClickCount struct {
	Day          string `json:"day"`
	Type         string `json:"type"`
	Clicked      int    `json:"clicked"`
	Unsubscribed int    `json:"unsubscribed"`
}

// Clicks asks how many notifications of an app a user has clicked in the last so many days,
// of which today is one; 0 = 30. The key needs the right read; or it is a token of the user,
// and app may be empty.
func (c *Client) Clicks(ctx context.Context, user, app string, days int) (*Clicks, error) {
	path := at("/v1/users/{}/clicks", user) + query(map[string]string{"app": app}, map[string]int{"days": days})
	return ask[Clicks](ctx, c, "counting clicks", &asking{method: http.MethodGet, path: path}, http.StatusOK)
}
