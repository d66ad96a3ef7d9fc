package journal_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/journal/journaltest"
)

func TestCassandra(t *testing.T) {
	journaltest.Run(t, journal.New(journal.Options{Tables: keyspacetest.Open(t)}))
}
