package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// LongestWait is how long a gateway waits for something new in an inbox.
const LongestWait = 30 * time.Second

// InboxItem is what is there for a user to read.
type InboxItem struct {
	ID        string          `json:"id"`     // of the notification
	Topic     string          `json:"topic"`  // by which it came; "" = it is for this user alone
	Cursor    string          `json:"cursor"` // names it in Marks
	At        time.Time       `json:"at"`
	Type      string          `json:"type"`
	Priority  string          `json:"priority"`
	Read      bool            `json:"read"`
	ExpiresAt time.Time       `json:"expires_at"` // zero = never
	Content   json.RawMessage `json:"content"`    // title, body, image and so on, as docs/gateway.md says
}

// InboxPage is a page of an inbox, the newest first.
type InboxPage struct {
	Items    []InboxItem `json:"items"`
	Withheld int         `json:"withheld"`        // entries for which limits have no room now
	LeftOut  int         `json:"topics_left_out"` // topics that the user pulls beyond 100, which are not in it
	FreeAt   time.Time   `json:"free_at"`         // when the first of them may be shown; zero = nobody knows
	Next     string      `json:"next"`            // for InboxQuery.After; "" = there are no more
	Tag      string      `json:"-"`               // for InboxQuery.Tag
}

// ErrUnchanged says that the page with the query's Tag is still what there is.
var ErrUnchanged = errors.New("nothing has changed")

// InboxQuery is what is asked of an inbox. The zero query is for the newest 20.
type InboxQuery struct {
	After string        // the Next of the page before
	Limit int           // 1 to 100; 0 = 20
	Tag   string        // of the page that the caller has: without a change the answer is ErrUnchanged
	Wait  time.Duration // for a change, or without a Tag for an item; whole seconds to LongestWait, not with After
}

// Inbox asks what there is to read for a user of an app. The key needs the right users; or
// it is a token of the user, and app may be empty.
func (c *Client) Inbox(ctx context.Context, user, app string, q InboxQuery) (*InboxPage, error) {
	values := url.Values{}
	for name, value := range map[string]string{"app": app, "after": q.After} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if q.Limit > 0 {
		values.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Wait > 0 {
		values.Set("wait", strconv.Itoa(int(q.Wait/time.Second)))
	}
	a := &asking{method: http.MethodGet, path: "/v1/users/" + url.PathEscape(user) + "/inbox?" + values.Encode(), tag: q.Tag, longer: q.Wait}
	var page *InboxPage
	err := c.repeat(ctx, func() []string { return nil }, func() error {
		page = &InboxPage{}
		return c.once(ctx, a, page, http.StatusOK, http.StatusNotModified)
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading an inbox: %w", err)
	case a.unchanged:
		return nil, ErrUnchanged
	}
	page.Tag = a.answered
	return page, nil
}

// Unread is how much of an inbox is not read.
type Unread struct {
	Count int  `json:"unread"` // to 100
	More  bool `json:"more"`   // there may be others
}

// Unread asks how much of an inbox is not read; what limits withhold counts, too. The key is
// that of Inbox.
func (c *Client) Unread(ctx context.Context, user, app string) (Unread, error) {
	path := "/v1/users/" + url.PathEscape(user) + "/inbox/unread"
	if app != "" {
		path += "?app=" + url.QueryEscape(app)
	}
	var u Unread
	err := c.repeat(ctx, func() []string { return nil }, func() error {
		return c.once(ctx, &asking{method: http.MethodGet, path: path}, &u, http.StatusOK)
	})
	if err != nil {
		return Unread{}, fmt.Errorf("counting what is not read: %w", err)
	}
	return u, nil
}

// Marks are what becomes of items, by their cursors: 100 of Read and Unread together.
type Marks struct {
	Read   []string `json:"read,omitempty"`
	Unread []string `json:"unread,omitempty"`
	UpTo   string   `json:"read_up_to,omitempty"` // this item and all older ones are read
}

// MarkInbox marks items of an inbox. Made again, it changes nothing.
func (c *Client) MarkInbox(ctx context.Context, user, app string, m Marks) error {
	body, err := json.Marshal(struct {
		App string `json:"app,omitempty"`
		Marks
	}{app, m})
	if err != nil {
		return fmt.Errorf("marking an inbox: %w", err)
	}
	var answer struct{}
	err = c.repeat(ctx, func() []string { return nil }, func() error {
		return c.once(ctx, &asking{method: http.MethodPost, path: "/v1/users/" + url.PathEscape(user) + "/inbox/marks", contentType: "application/json", body: body}, &answer, http.StatusOK)
	})
	if err != nil {
		return fmt.Errorf("marking an inbox: %w", err)
	}
	return nil
}
