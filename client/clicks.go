package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
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
	body, err := json.Marshal(map[string]string{"token": token, "event": event})
	if err != nil {
		return fmt.Errorf("reporting an event: %w", err)
	}
	a := &asking{method: http.MethodPost, path: "/v1/events", contentType: "application/json", body: body, keyless: true}
	var answer struct{}
	if err := c.repeat(ctx, func() []string { return nil }, func() error { return c.once(ctx, a, &answer, http.StatusOK) }); err != nil {
		return fmt.Errorf("reporting an event: %w", err)
	}
	return nil
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
	if len(reports) == 0 || len(reports) > MaxBatch {
		return nil, fmt.Errorf("%d reports, want 1 to %d", len(reports), MaxBatch)
	}
	lines, results, open := make([][]byte, len(reports)), make([]Result, len(reports)), make([]int, len(reports))
	for i := range reports {
		if lines[i], err = json.Marshal(reports[i]); err != nil {
			return nil, fmt.Errorf("report %d: %w", i, err)
		}
		open[i] = i
	}
	a := asking{method: http.MethodPost, path: "/v1/events/batch", contentType: "application/x-ndjson", keyless: true}
	err = c.repeat(ctx, func() []string { return nil }, func() (err error) {
		open, err = c.sendLines(ctx, a, lines, open, results, http.StatusOK, http.StatusMultiStatus)
		return err
	})
	if len(open) == len(reports) && err != nil && !givenUp(err) {
		return nil, fmt.Errorf("reporting %d events: %w", len(reports), err)
	}
	for _, i := range open {
		results[i].Err = err
	}
	errs, err = make([]error, len(reports)), nil
	for i := range results {
		if errs[i] = results[i].Err; errs[i] != nil && err == nil {
			err = fmt.Errorf("reporting event %d: %w", i, errs[i])
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
	values := url.Values{}
	if app != "" {
		values.Set("app", app)
	}
	if days != 0 {
		values.Set("days", strconv.Itoa(days))
	}
	a := &asking{method: http.MethodGet, path: "/v1/users/" + url.PathEscape(user) + "/clicks?" + values.Encode()}
	var clicks *Clicks
	err := c.repeat(ctx, func() []string { return nil }, func() error {
		clicks = &Clicks{}
		return c.once(ctx, a, clicks, http.StatusOK)
	})
	if err != nil {
		return nil, fmt.Errorf("counting clicks: %w", err)
	}
	return clicks, nil
}
