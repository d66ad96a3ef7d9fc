package client

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
)

// withInbox gives a gateway inboxes, and the client's key the right to them.
func withInbox(t *testing.T, store *inbox.Memory) func(*gateway.Options) {
	t.Helper()
	users := gateway.NewUsers(nil, nil) // nothing is changed by it
	t.Cleanup(users.Close)
	return func(o *gateway.Options) {
		o.Callers, o.Users = callersWith(t, gateway.Manage), users
		o.Inbox = &gateway.Inbox{Store: store, Watcher: inbox.NewWatcher(inbox.WatcherOptions{News: store, Log: slog.New(slog.DiscardHandler)})}
	}
}

// Pages are read on by their Next, an unchanged one is told by its Tag, and what is marked
// is read; after a failure the same is asked again.
func TestInbox(t *testing.T) {
	store := inbox.NewMemory(nil)
	k := inbox.Key{User: "a/ü", App: "shop"}
	for i, id := range []string{"old", "middle", "new"} {
		e := inbox.Addressed{Key: k, Entry: inbox.Entry{Position: inbox.PositionOf(id, time.Now().Add(time.Duration(i-10)*time.Minute)), Type: "news", Priority: push.Low, Content: []byte(`{"title":"T"}`)}}
		if err := store.Put(t.Context(), []inbox.Addressed{e}); err[0] != nil {
			t.Fatal(err[0])
		}
	}
	w := newWorld(t, withInbox(t, store))
	failed := 0
	w.before = func(rw http.ResponseWriter, _ *http.Request) bool {
		failed++
		if failed == 1 {
			rw.WriteHeader(http.StatusBadGateway)
		}
		return failed == 1
	}
	page, err := w.client.Inbox(t.Context(), k.User, k.App, InboxQuery{Limit: 2, Wait: time.Second})
	if err != nil || len(page.Items) != 2 || page.Items[0].ID != "new" || string(page.Items[0].Content) != `{"title":"T"}` || page.Next == "" || page.Tag == "" {
		t.Fatalf("%+v, %v", page, err)
	}
	rest, err := w.client.Inbox(t.Context(), k.User, k.App, InboxQuery{After: page.Next})
	if err != nil || len(rest.Items) != 1 || rest.Items[0].ID != "old" || rest.Next != "" {
		t.Errorf("%+v, %v", rest, err)
	}
	if _, err := w.client.Inbox(t.Context(), k.User, k.App, InboxQuery{Limit: 2, Tag: page.Tag}); !errors.Is(err, ErrUnchanged) {
		t.Errorf("nothing has changed: %v", err)
	}
	if err := w.client.MarkInbox(t.Context(), k.User, k.App, Marks{Read: []string{page.Items[1].Cursor}, UpTo: rest.Items[0].Cursor}); err != nil {
		t.Fatal(err)
	}
	page, err = w.client.Inbox(t.Context(), k.User, k.App, InboxQuery{Tag: page.Tag})
	if err != nil || page.Items[0].Read || !page.Items[1].Read || !page.Items[2].Read {
		t.Errorf("%+v, %v", page, err)
	}
	if u, err := w.client.Unread(t.Context(), k.User, k.App); u != (Unread{Count: 1}) || err != nil {
		t.Errorf("%+v are not read, %v", u, err)
	}
	var p *Problem
	if _, err := w.client.Unread(t.Context(), k.User, "bank"); !errors.As(err, &p) || p.Code != "foreign_app" {
		t.Errorf("another app: %v", err)
	}
	if err := w.client.MarkInbox(t.Context(), k.User, "bank", Marks{UpTo: "x"}); !errors.As(err, &p) || p.Code != "foreign_app" {
		t.Errorf("another app: %v", err)
	}
	if _, err := w.client.Inbox(t.Context(), k.User, k.App, InboxQuery{After: strings.Repeat("x", 300)}); !errors.As(err, &p) || p.Code != "bad_request" {
		t.Errorf("no cursor: %v", err)
	}
}
