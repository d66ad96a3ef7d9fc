package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/audiences"
)

// membersStore is audiences.Store and audiences.Memory.
type membersStore interface {
	erasedMembers
	Add(ctx context.Context, uses []audiences.Use) (added int, err error)
}

// erasesAudiences erases one of two users from a store: of all apps, at --yes alone, and
// nobody else; and a registry that reads the registration only then does not bring one back.
func erasesAudiences(t *testing.T, f *fleet, s membersStore) {
	t.Helper()
	var uses []audiences.Use
	for _, user := range []string{"ada", "ben"} {
		for _, app := range []string{"shop", "bank"} {
			uses = append(uses, audiences.Use{App: app, User: user, At: time.Now()})
		}
	}
	add := func() {
		t.Helper()
		if _, err := s.Add(t.Context(), uses); err != nil {
			t.Fatal(err)
		}
	}
	add()
	if v := f.erase("ada", exitDone); v.Found.Audiences != 2 || v.Left.Audiences != 2 || !strings.Contains(fmt.Sprint(v.Remains), "app_users") {
		t.Errorf("a dry run: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); v.Found.Audiences != 2 || v.Left.Audiences != 0 {
		t.Errorf("erased: %+v", v)
	}
	add()
	if v := f.erase("ada", exitDone); v.Found.Audiences != 0 {
		t.Errorf("read once more: %+v", v)
	}
	if v := f.erase("ben", exitDone); v.Found.Audiences != 2 {
		t.Errorf("another user: %+v", v)
	}
}

func TestEraseAudiences(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + inboxApps + "registry: {audiences: true}\n" })
	f.startRegistry()
	store := audiences.NewMemory(nil)
	f.members = store
	erasesAudiences(t, f, store)
	if out := f.ok("users", "erase", "\xff"); !strings.Contains(out, "audiences of apps") {
		t.Errorf("one who can be no member: %s", out)
	}
	store.Fail(errors.New("no hosts available"))
	if exit, stdout, stderr := f.run("", "users", "erase", "ben", "--yes"); exit == exitDone || stdout != "" || !strings.Contains(stderr, "no hosts available") {
		t.Errorf("a store that is away: exit status %d: %s %s", exit, stdout, stderr)
	}
}

// Without apps a user would be called erased who is in all audiences.
func TestEraseAudiencesNeedsApps(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + "registry: {audiences: true}\n" })
	f.members = audiences.NewMemory(nil)
	if exit, _, stderr := f.run("", "users", "erase", "ada"); exit != exitUsage || !strings.Contains(stderr, "apps: must not be empty") {
		t.Errorf("exit status %d: %s", exit, stderr)
	}
}

// Of a real Cassandra.
func TestEraseAudiencesCassandra(t *testing.T) {
	f, _, session := startWithCassandra(t, inboxApps+"registry: {audiences: true}\n")
	erasesAudiences(t, f, audiences.New(audiences.Options{Tables: session}))
}
