package main

import (
	"context"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/wiring"
)

// journalLane is a lane whose messages are found by user.
const journalLane = "lanes: [{name: bulk, topic: push.bulk, mode: at_least_once, journal: 168h}]\n"

func erasesJournal(t *testing.T, f *fleet, s interface {
	Put(ctx context.Context, entries []journal.Entry) error
}) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Millisecond)
	erasesRows(t, f, func(user, app string) error {
		return s.Put(t.Context(), []journal.Entry{{Position: journal.Position{At: now, ID: "n-" + app}, User: user, App: app, Kept: 48 * time.Hour}})
	}, func(c eraseCounts) int { return c.Journal }, "lanes[].journal")
}

func TestEraseJournal(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + journalLane })
	f.startRegistry()
	store := journal.NewMemory()
	f.journal = store
	erasesJournal(t, f, store)
	failsToErase(t, f, func(s erasedRows) { f.journal = s }, store, "journal entries")
}

// Of a real Cassandra.
func TestEraseJournalCassandra(t *testing.T) {
	f, c, session := startWithCassandra(t, journalLane)
	erasesJournal(t, f, journal.New(wiring.JournalOptions(c, session)))
}
