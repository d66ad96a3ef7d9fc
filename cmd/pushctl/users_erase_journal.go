package main

import (
	"context"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/wiring"
)

// journalStore is where it is noted which messages users were meant to get; nil = no lane does.
func (a *app) journalStore(ctx context.Context, c *configs.Config) (erasedRows, error) {
	if !c.KeepsJournals() {
		return nil, nil
	}
	if a.journal != nil {
		return a.journal, nil
	}
	tables, err := a.cassandraTables(ctx)
	if err != nil {
		return nil, err
	}
	return journal.New(wiring.JournalOptions(c, tables)), nil
}
