package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// clicksStore is clicks.Store and clicks.Memory.
type clicksStore interface {
	erasedRows
	Note(ctx context.Context, r *clicks.Report) error
}

// erasesClicks erases one of two users from a store: of all apps, at --yes alone, and
// nobody else.
func erasesClicks(t *testing.T, f *fleet, s clicksStore) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for _, user := range []string{"ada", "ben"} {
		for _, app := range []string{"shop", "bank"} {
			if err := s.Note(t.Context(), &clicks.Report{Key: clicks.Key{User: user, App: app, ID: "n1"}, Event: clicks.Clicked, Type: "news", Sender: "orders", Sent: now, At: now}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v := f.erase("ada", exitDone); v.Found.Clicks != 2 || v.Left.Clicks != 2 || !strings.Contains(fmt.Sprint(v.Remains), "gateway.clicks.valid") {
		t.Errorf("a dry run: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); v.Found.Clicks != 2 || v.Left.Clicks != 0 {
		t.Errorf("erased: %+v", v)
	}
	if v := f.erase("ben", exitDone); v.Found.Clicks != 2 {
		t.Errorf("another user: %+v", v)
	}
}

func TestEraseClicks(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + "gateway: {clicks: {enabled: true}}\n" })
	f.startRegistry()
	store := clicks.NewMemory()
	f.clicks = store
	erasesClicks(t, f, store)
	if out := f.ok("users", "erase", "ben"); !strings.Contains(out, "reports of apps") {
		t.Errorf("a dry run says %s", out)
	}
	f.clicks = keepsAll{store}
	if exit, stdout, stderr := f.run("", "users", "erase", "ben", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "the command can be repeated") {
		t.Errorf("a store that removes nothing: exit status %d: %s %s", exit, stdout, stderr)
	}
	f.clicks = store
	store.Fail(errors.New("no hosts available"))
	if exit, stdout, stderr := f.run("", "users", "erase", "ben", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "no hosts available") {
		t.Errorf("a store that is away: exit status %d: %s %s", exit, stdout, stderr)
	}
}

// keepsAll is a store that can be read alone.
type keepsAll struct{ erasedRows }

func (keepsAll) Forget(context.Context, string) error { return errors.New("unauthorized") }

// Of a real Cassandra.
func TestEraseClicksCassandra(t *testing.T) {
	server := localtest.Require(t)
	f := startFleet(t, true)
	f.configure(func(text string) string {
		return text + fmt.Sprintf("gateway: {clicks: {enabled: true}}\ncassandra: {hosts: [%q], keyspace: pushctl_%d}\n", server.Cassandra, time.Now().UnixNano())
	})
	f.ok("schema", "apply")
	f.startRegistry()
	c, err := configs.Load(f.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := wiring.Cassandra(c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	session, err := status.OpenSession(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	erasesClicks(t, f, clicks.New(wiring.ClicksOptions(c, session)))
}
