package wiring

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/status"
)

// Inbox connects to where inboxes are kept, in one attempt that ends with ctx, and looks
// whether all is there. done ends its session.
func Inbox(ctx context.Context, c *configs.Config, o status.Options) (store *inbox.Store, done func(), err error) {
	session, err := status.OpenSession(ctx, o)
	if err != nil {
		return nil, nil, fmt.Errorf("inbox: %w", err)
	}
	store = inbox.New(InboxOptions(c, session))
	if err := store.Check(ctx); err != nil {
		session.Close()
		return nil, nil, fmt.Errorf("%w (pushctl schema apply)", err)
	}
	return store, session.Close, nil
}

// InboxOptions are those of inboxes in these tables.
func InboxOptions(c *configs.Config, tables inbox.Tables) inbox.Options {
	return inbox.Options{Tables: tables, TTL: c.Inbox.TTL, Concurrency: c.Inbox.Concurrency}
}
