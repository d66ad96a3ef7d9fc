package journal_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/journal/journaltest"
)

func TestMemory(t *testing.T) { journaltest.Run(t, journal.NewMemory()) }
