package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/clicks"
	"github.com/pushfleet/pushfleet/wiring"
)

// erasesRows erases one of two users from a store: of all apps, at --yes alone, and nobody
// else. write writes a row, count is how many are told of, and remains what is.
func erasesRows(t *testing.T, f *fleet, write func(user, app string) error, count func(eraseCounts) int, remains string) {
	t.Helper()
	for _, user := range []string{"ada", "ben"} {
		for _, app := range []string{"shop", "bank"} {
			if err := write(user, app); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v := f.erase("ada", exitDone); count(v.Found) != 2 || count(v.Left) != 2 || !strings.Contains(fmt.Sprint(v.Remains), remains) {
		t.Errorf("a dry run: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); count(v.Found) != 2 || count(v.Left) != 0 {
		t.Errorf("erased: %+v", v)
	}
	if v := f.erase("ben", exitDone); count(v.Found) != 2 {
		t.Errorf("another user: %+v", v)
	}
}

// failsToErase has a store that removes nothing, and one that is away, end the command.
func failsToErase(t *testing.T, f *fleet, use func(erasedRows), store interface {
	erasedRows
	Fail(err error)
}, shown string) {
	t.Helper()
	if out := f.ok("users", "erase", "ben"); !strings.Contains(out, shown) {
		t.Errorf("a dry run says %s", out)
	}
	use(keepsAll{store})
	if exit, stdout, stderr := f.run("", "users", "erase", "ben", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "the command can be repeated") {
		t.Errorf("a store that removes nothing: exit status %d: %s %s", exit, stdout, stderr)
	}
	use(store)
	store.Fail(errors.New("no hosts available"))
	if exit, stdout, stderr := f.run("", "users", "erase", "ben", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "no hosts available") {
		t.Errorf("a store that is away: exit status %d: %s %s", exit, stdout, stderr)
	}
}

// keepsAll is a store that can be read alone.
type keepsAll struct{ erasedRows }

func (keepsAll) Forget(context.Context, string) error { return errors.New("unauthorized") }

func erasesClicks(t *testing.T, f *fleet, s interface {
	Note(ctx context.Context, r *clicks.Report) error
}) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	erasesRows(t, f, func(user, app string) error {
		return s.Note(t.Context(), &clicks.Report{Key: clicks.Key{User: user, App: app, ID: "n1"}, Event: clicks.Clicked, Type: "news", Sender: "orders", Sent: now, At: now})
	}, func(c eraseCounts) int { return c.Clicks }, "gateway.clicks.valid")
}

func TestEraseClicks(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + "gateway: {clicks: {enabled: true}}\n" })
	f.startRegistry()
	store := clicks.NewMemory()
	f.clicks = store
	erasesClicks(t, f, store)
	failsToErase(t, f, func(s erasedRows) { f.clicks = s }, store, "reports of apps")
}

// Of a real Cassandra.
func TestEraseClicksCassandra(t *testing.T) {
	f, c, session := startWithCassandra(t, "gateway: {clicks: {enabled: true}}\n")
	erasesClicks(t, f, clicks.New(wiring.ClicksOptions(c, session)))
}
