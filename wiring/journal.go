package wiring

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/status"
)

// Journal connects to where journals of users are kept, in one attempt that ends with ctx, and
// looks whether all is there. done ends its session.
func Journal(ctx context.Context, c *configs.Config, o status.Options) (store *journal.Store, done func(), err error) {
	session, err := status.OpenSession(ctx, o)
	if err != nil {
		return nil, nil, fmt.Errorf("journal: %w", err)
	}
	store = journal.New(JournalOptions(c, session))
	if err := store.Check(ctx); err != nil {
		session.Close()
		return nil, nil, fmt.Errorf("%w (pushctl schema apply)", err)
	}
	return store, session.Close, nil
}

// JournalOptions are those of journals in these tables.
func JournalOptions(c *configs.Config, tables journal.Tables) journal.Options {
	return journal.Options{Tables: tables, Concurrency: c.Cassandra.Concurrency}
}
