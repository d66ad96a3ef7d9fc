// Package journaltest is what every store of journals has to pass.
package journaltest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/journal"
)

// Store is what journal.Store and journal.Memory do.
type Store interface {
	Check(ctx context.Context) error
	Put(ctx context.Context, entries []journal.Entry) error
	Page(ctx context.Context, q *journal.Question) ([]journal.Entry, *journal.Position, error)
	Count(ctx context.Context, user string) (int, error)
	Forget(ctx context.Context, user string) error
}

var names atomic.Int64

// user is one that no other test has, also of another run on the same server.
func user() string { return fmt.Sprintf("u%x-%x", time.Now().UnixNano(), names.Add(1)) }

const day = 24 * time.Hour

// Run tests a store, whose clock is the real one.
func Run(t *testing.T, s Store) {
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, Store)
	}{{"Order", order}, {"Repeats", repeats}, {"Whose", whose}, {"Pages", pages}, {"Copies", copies}, {"Forget", forget}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// entry is one of a user, so long ago.
func entry(user, id string, ago time.Duration) journal.Entry {
	return journal.Entry{Position: journal.Position{At: time.Now().UTC().Add(-ago).Truncate(time.Millisecond), ID: id},
		User: user, App: "shop", Sender: "orders", Type: "news", Lane: "promotional", Kept: 60 * day}
}

func put(t *testing.T, s Store, entries ...journal.Entry) {
	t.Helper()
	if err := s.Put(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
}

// question asks for all of a user's.
func question(user string) *journal.Question {
	now := time.Now()
	return &journal.Question{User: user, Apps: []string{"shop"}, Since: now.Add(-60 * day), Behind: journal.Top(now), Limit: journal.MaxPage}
}

// ids are those of a page.
func ids(t *testing.T, s Store, q *journal.Question) string {
	t.Helper()
	page, next, err := s.Page(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range page {
		list = append(list, e.ID)
	}
	if next != nil {
		list = append(list, "and more")
	}
	return strings.Join(list, ", ")
}

// Entries come from the newest to the oldest, over all partitions and also of one moment, as
// they were put, and those that are too old do not.
func order(t *testing.T, s Store) {
	u := user()
	late, twin := entry(u, "b", time.Hour), entry(u, "c", 0)
	twin.At = late.At
	all := []journal.Entry{entry(u, "f", 59*day), entry(u, "d", 11*day), late, entry(u, "ahead", -time.Minute), entry(u, "e", 31*day), twin, entry(u, `ü"'~ %s`, 2*time.Hour)}
	put(t, s, all...)
	if got := ids(t, s, question(u)); got != `ahead, c, b, ü"'~ %s, d, e, f` {
		t.Error(got)
	}
	q := question(u)
	q.Since = time.Now().Add(-30 * day)
	if got := ids(t, s, q); got != `ahead, c, b, ü"'~ %s, d` {
		t.Errorf("of 30 days %s", got)
	}
	page, _, err := s.Page(t.Context(), question(u))
	if err != nil || len(page) != len(all) {
		t.Fatal(len(page), err)
	}
	for _, e := range all {
		e.Kept = 0
		if !slices.Contains(page, e) {
			t.Errorf("%+v is not among %+v", e, page)
		}
	}
	if got := ids(t, s, question(user())); got != "" {
		t.Errorf("another user has %s", got)
	}
}

// What is put again is there once.
func repeats(t *testing.T, s Store) {
	e := entry(user(), "a", time.Hour)
	put(t, s, e, e)
	put(t, s, e)
	if n, err := s.Count(t.Context(), e.User); err != nil || n != 1 {
		t.Errorf("%d rows, %v", n, err)
	}
	put(t, s) // nothing
}

// Who asks sees the apps and the sender that it asks for, and no other's.
func whose(t *testing.T, s Store) {
	u := user()
	bank, campaign := entry(u, "bank", 2*time.Hour), entry(u, "campaign", 3*time.Hour)
	bank.App, campaign.Sender = "bank", "campaigns"
	put(t, s, entry(u, "shop", time.Hour), bank, campaign)
	for _, tt := range []struct {
		apps   []string
		sender string
		want   string
	}{
		{[]string{"shop"}, "", "shop, campaign"}, {[]string{"shop"}, "orders", "shop"}, {[]string{"bank"}, "", "bank"}, {[]string{"shop", "bank"}, "", "shop, bank, campaign"},
		{[]string{"shop", "bank"}, "campaigns", "campaign"}, {[]string{"other"}, "", ""}, {nil, "", ""},
	} {
		q := question(u)
		if q.Apps, q.Sender = tt.apps, tt.sender; ids(t, s, q) != tt.want {
			t.Errorf("apps %q, sender %q: %s, want %s", tt.apps, tt.sender, ids(t, s, q), tt.want)
		}
	}
}

// Page by page comes everything, once, also what is behind many of others.
func pages(t *testing.T, s Store) {
	u := user()
	var all []journal.Entry
	want := map[string]bool{}
	for i := range 250 {
		e := entry(u, fmt.Sprintf("n%03d", i), time.Duration(i)*3*time.Hour)
		if i%5 > 0 {
			e.Sender = "others"
		} else {
			want[e.ID] = true
		}
		all = append(all, e)
	}
	put(t, s, all...)
	q := question(u)
	q.Sender, q.Limit = "orders", 7
	last := ""
	for range 10 {
		page, next, err := s.Page(t.Context(), q)
		if err != nil || len(page) > q.Limit {
			t.Fatal(len(page), err)
		}
		for _, e := range page {
			if !want[e.ID] || e.ID <= last {
				t.Errorf("%s comes behind %s", e.ID, last)
			}
			delete(want, e.ID)
			last = e.ID
		}
		if next == nil {
			break
		}
		q.Behind = *next
	}
	if len(want) > 0 {
		t.Errorf("%d have not come", len(want))
	}
}

// An id that was written twice comes once in a page, as the newer one.
func copies(t *testing.T, s Store) {
	u := user()
	newer, older := entry(u, "a", time.Hour), entry(u, "a", 15*day)
	put(t, s, older, newer, entry(u, "b", 2*day))
	if got := ids(t, s, question(u)); got != "a, b" {
		t.Error(got)
	}
	page, _, err := s.Page(t.Context(), question(u))
	if err != nil || !page[0].At.Equal(newer.At) {
		t.Errorf("%+v, %v", page, err)
	}
}

// A user who is erased has nothing, and others keep theirs.
func forget(t *testing.T, s Store) {
	u, other := user(), user()
	old := entry(u, "old", 89*day)
	old.Kept = journal.MostKept
	put(t, s, entry(u, "a", 0), entry(u, "b", 45*day), old, entry(u, "ahead", -time.Minute), entry(other, "c", 0))
	if n, err := s.Count(t.Context(), u); err != nil || n != 4 {
		t.Errorf("%d rows, %v", n, err)
	}
	for range 2 {
		if err := s.Forget(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Count(t.Context(), u); err != nil || n != 0 || ids(t, s, question(u)) != "" {
		t.Errorf("%d rows are left, %v", n, err)
	}
	if got := ids(t, s, question(other)); got != "c" {
		t.Errorf("another user has %s", got)
	}
}
