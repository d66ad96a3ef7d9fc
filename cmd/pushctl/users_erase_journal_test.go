package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/wiring"
)

// journalLane is a lane whose messages are found by user.
const journalLane = "lanes: [{name: bulk, topic: push.bulk, mode: at_least_once, journal: 168h}]\n"

// notes is journal.Store and journal.Memory.
type notes interface {
	erasedRows
	Put(ctx context.Context, entries []journal.Entry) error
}

// erasesJournal erases one of two users from a store: of all apps, at --yes alone, and nobody
// else.
func erasesJournal(t *testing.T, f *fleet, s notes) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	for _, user := range []string{"ada", "ben"} {
		for _, app := range []string{"shop", "bank"} {
			if err := s.Put(t.Context(), []journal.Entry{{Position: journal.Position{At: now, ID: "n-" + app}, User: user, App: app, Kept: 48 * time.Hour}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v := f.erase("ada", exitDone); v.Found.Journal != 2 || v.Left.Journal != 2 || !strings.Contains(fmt.Sprint(v.Remains), "lanes[].journal") {
		t.Errorf("a dry run: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); v.Found.Journal != 2 || v.Left.Journal != 0 {
		t.Errorf("erased: %+v", v)
	}
	if v := f.erase("ben", exitDone); v.Found.Journal != 2 {
		t.Errorf("another user: %+v", v)
	}
}

func TestEraseJournal(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + journalLane })
	f.startRegistry()
	store := journal.NewMemory()
	f.journal = store
	erasesJournal(t, f, store)
	if out := f.ok("users", "erase", "ben"); !strings.Contains(out, "journal entries") {
		t.Errorf("a dry run says %s", out)
	}
	f.journal = keepsAll{store}
	if exit, stdout, stderr := f.run("", "users", "erase", "ben", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "the command can be repeated") {
		t.Errorf("a store that removes nothing: exit status %d: %s %s", exit, stdout, stderr)
	}
	f.journal = store
	store.Fail(errors.New("no hosts available"))
	if exit, stdout, stderr := f.run("", "users", "erase", "ben", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "no hosts available") {
		t.Errorf("a store that is away: exit status %d: %s %s", exit, stdout, stderr)
	}
}

// Of a real Cassandra.
func TestEraseJournalCassandra(t *testing.T) {
	server := localtest.Require(t)
	f := startFleet(t, true)
	f.configure(func(text string) string {
		return text + journalLane + fmt.Sprintf("cassandra: {hosts: [%q], keyspace: pushctl_%d}\n", server.Cassandra, time.Now().UnixNano())
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
	store, done, err := wiring.Journal(ctx, c, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(done)
	erasesJournal(t, f, store)
}
