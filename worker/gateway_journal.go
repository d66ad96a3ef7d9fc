package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/wiring"
)

// JournalStore is where a gateway reads which messages users were meant to get.
type JournalStore interface {
	gateway.JournalReader
	Check(ctx context.Context) error
}

// journalState is the name of journals in /readyz.
const journalState = "journal"

// journalOf is what a gateway needs to find messages by user; nil = no lane notes them. It
// connects to nothing yet.
func (g *openGateway) journalOf() *gateway.Journal {
	if !g.Config.KeepsJournals() {
		return nil
	}
	if g.journal = g.Journal; g.journal == nil {
		g.noted = &lateTables{err: errNotYet}
		g.journal = journal.New(wiring.JournalOptions(g.Config, g.noted))
		g.aside.set(journalState, errNotYet)
	}
	return &gateway.Journal{Store: g.journal, Kept: g.Config.LongestJournal()}
}

// watchJournal connects to the table, and looks at it until ctx ends.
func (g *openGateway) watchJournal(ctx context.Context, watches *sync.WaitGroup) {
	if g.noted == nil {
		return
	}
	watches.Go(func() {
		g.watchLate(ctx, journalState, g.noted, func(ctx context.Context) error {
			if err := g.journal.Check(ctx); err != nil {
				return fmt.Errorf("%w (pushctl schema apply)", err)
			}
			return nil
		})
	})
}
