package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// LongestWait is how long a gateway waits for something new in an inbox.
const LongestWait = 30 * time.Second

// InboxItem is what is there for a user to read.
type InboxItem struct {
	ID        string    `json:"id"`     // of the notification
	Topic     string    `json:"topic"`  // by which it came; "" = it is for this user alone
	Cursor    string    `json:"cursor"` // names it in Marks
	At        time.Time `json:"at"`
	Type      string    `json:"type"`
	Priority  string    `json:"priority"`
	Read      bool      `json:"read"`
	ExpiresAt time.Time `json:"expires_at"` // zero = never
	// Confidential says that a push has nothing of the content. Sealed = nor has this answer: the
	// text is for a client of the user, by a token.
	Confidential bool            `json:"confidential"`
	Sealed       bool            `json:"sealed"`
	Content      json.RawMessage `json:"content"` // title, body, image and so on, as docs/gateway.md says
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
	path := at("/v1/users/{}/inbox", user) + query(map[string]string{"app": app, "after": q.After}, map[string]int{"limit": max(q.Limit, 0), "wait": max(int(q.Wait/time.Second), 0)})
	a := &asking{method: http.MethodGet, path: path, tag: q.Tag, longer: q.Wait}
	page, err := ask[InboxPage](ctx, c, "reading an inbox", a, http.StatusOK, http.StatusNotModified)
	switch {
	case err != nil:
		return nil, err
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
	path := at("/v1/users/{}/inbox/unread", user) + query(map[string]string{"app": app}, nil)
	u, err := ask[Unread](ctx, c, "counting what is not read", &asking{method: http.MethodGet, path: path}, http.StatusOK)
	if err != nil {
		return Unread{}, err
	}
	return *u, nil
}

// Marks are what becomes of items, by their cursors: 100 of Read and Unread together.
type Marks struct {
	Read   []string `json:"read,omitempty"`
	Unread []string `json:"unread,omitempty"`
	UpTo   string   `json:"read_up_to,omitempty"` // this item and all older ones are read
}

// MarkInbox marks items of an inbox. Made again, it changes nothing.
func (c *Client) MarkInbox(ctx context.Context, user, app string, m Marks) error {
	said := struct {
		App string `json:"app,omitempty"`
		Marks
	}{app, m}
	a := &asking{method: http.MethodPost, path: at("/v1/users/{}/inbox/marks", user), said: said}
	_, err := ask[struct{}](ctx, c, "marking an inbox", a, http.StatusOK)
	return err
}
