package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
)

// inboxApps are two apps, of which users have an inbox each.
const inboxApps = `apps:
  - {name: shop, fcm: {project: shop-1, service_account_file: /nowhere/shop.json}}
  - {name: bank, fcm: {project: bank-1, service_account_file: /nowhere/bank.json}}
`

// inboxStore is inbox.Store and inbox.Memory.
type inboxStore interface {
	erasedInbox
	Put(ctx context.Context, entries []inbox.Addressed) []error
	Mark(ctx context.Context, k inbox.Key, m *inbox.Marks) error
}

// fillInbox keeps a message in a user's inbox of each app, of which the first is read: 3 rows.
func fillInbox(t *testing.T, s inboxStore, user string) {
	t.Helper()
	e := inbox.Entry{Position: inbox.PositionOf("n1", time.Now()), Type: "news", Priority: push.Low, Content: []byte(`{}`)}
	for _, err := range s.Put(t.Context(), []inbox.Addressed{{Key: inbox.Key{User: user, App: "shop"}, Entry: e}, {Key: inbox.Key{User: user, App: "bank"}, Entry: e}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Mark(t.Context(), inbox.Key{User: user, App: "shop"}, &inbox.Marks{At: time.Now(), UpTo: e.Position}); err != nil {
		t.Fatal(err)
	}
}

// erasesInboxes erases one of two users from a store: all apps, at --yes alone, and nobody else.
func erasesInboxes(t *testing.T, f *fleet, s inboxStore) {
	t.Helper()
	fillInbox(t, s, "ada")
	fillInbox(t, s, "ben")
	if v := f.erase("ada", exitDone); v.Found.Inbox != 3 || v.Left.Inbox != 3 {
		t.Errorf("a dry run: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); v.Found.Inbox != 3 || v.Left.Inbox != 0 {
		t.Errorf("erased: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); v.Found != (eraseCounts{}) {
		t.Errorf("once more: %+v", v)
	}
	if v := f.erase("ben", exitDone); v.Found.Inbox != 3 {
		t.Errorf("another user: %+v", v)
	}
}

// The inboxes that a lane keeps, or that only a gateway still shows.
func TestEraseInbox(t *testing.T) {
	for name, kept := range map[string]string{"lane": "lanes: [{name: low, topic: push.low, inbox: true}]\n", "gateway": "gateway: {inbox: true}\n"} {
		t.Run(name, func(t *testing.T) {
			f := startFleet(t, true)
			f.configure(func(text string) string { return text + inboxApps + kept })
			f.startRegistry()
			store := inbox.NewMemory(nil)
			f.inbox = store
			erasesInboxes(t, f, store)
			out := f.ok("users", "erase", "ben")
			if !strings.Contains(out, "inbox entries") || !strings.Contains(out, "no longer names") || strings.Contains(out, "go to the user's inbox") != (name == "lane") {
				t.Errorf("a dry run says %s", out)
			}
		})
	}
}

// Nobody is called erased whose inbox could not be emptied, or not be found.
func TestEraseInboxFails(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + "gateway: {inbox: true}\n" })
	f.startRegistry()
	store := inbox.NewMemory(nil)
	f.inbox = store
	fillInbox(t, store, "ada")
	if exit, stdout, stderr := f.run("", "users", "erase", "ada", "--yes"); exit != exitUsage || stdout != "" || !strings.Contains(stderr, "apps: must not be empty") {
		t.Errorf("without apps: exit status %d: %s %s", exit, stdout, stderr)
	}
	f.configure(func(text string) string { return text + inboxApps })
	f.ok("prefs", "set", "ada", "--opt-out-all")
	f.inbox = stuck{store}
	exit, stdout, stderr := f.run("", "users", "erase", "ada", "--yes")
	if exit == exitDone || stdout != "" || !strings.Contains(stderr, "1 tombstones are in push.users; the command can be repeated") {
		t.Errorf("a store that removes nothing: exit status %d: %s %s", exit, stdout, stderr)
	}
	store.Fail(errors.New("no hosts available"))
	if exit, stdout, stderr := f.run("", "users", "erase", "ada", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "no hosts available") {
		t.Errorf("a store that is away: exit status %d: %s %s", exit, stdout, stderr)
	}
	store.Fail(nil)
	f.inbox = store
	if v := f.erase("ada", exitDone, "--yes"); v.Found.Inbox != 3 || v.Left != (eraseCounts{}) {
		t.Errorf("%+v", v)
	}
}

// stuck is a store that can be read alone.
type stuck struct{ erasedInbox }

func (stuck) Forget(context.Context, inbox.Key) error { return errors.New("unauthorized") }

// Of a real Cassandra.
func TestEraseInboxCassandra(t *testing.T) {
	f, c, session := startWithCassandra(t, inboxApps+"gateway: {inbox: true, topics: true}\n")
	erasesInboxes(t, f, inbox.New(wiring.InboxOptions(c, session)))
}
