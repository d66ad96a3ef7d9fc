package journal_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/journal/journaltest"
)

func TestCassandra(t *testing.T) {
	journaltest.Run(t, journal.New(journal.Options{Tables: keyspacetest.Open(t)}))
}

// BenchmarkCassandraPut writes batches of a worker: 10,000 notifications, each of another user.
func BenchmarkCassandraPut(b *testing.B) {
	s := journal.New(journal.Options{Tables: keyspacetest.Open(b), Concurrency: 32})
	now := time.Now().UTC().Truncate(time.Millisecond)
	entries := make([]journal.Entry, 10_000)
	for round := 0; b.Loop(); round++ {
		for i := range entries {
			entries[i] = journal.Entry{Position: journal.Position{At: now, ID: fmt.Sprintf("0199f3c2-7d1a-7c3e-%04x-%012x", round, i)}, User: fmt.Sprint("user-", i), App: "shop",
				Sender: "orders", Type: "news", Lane: "promotional", Kept: 7 * 24 * time.Hour}
		}
		if err := s.Put(b.Context(), entries); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(entries))/b.Elapsed().Seconds(), "rows/s")
}
