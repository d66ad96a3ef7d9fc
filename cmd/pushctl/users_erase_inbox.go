package main

import (
	"context"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/wiring"
)

// erasedInbox is what users erase needs of a store of inboxes.
type erasedInbox interface {
	Count(ctx context.Context, k inbox.Key) (rows int, err error)
	Forget(ctx context.Context, k inbox.Key) error
}

// erasedInboxes are a user's inboxes of all configured apps.
type erasedInboxes struct {
	store erasedInbox
	keys  []inbox.Key
}

// keepsInboxes reports whether there may be inboxes: a lane keeps them, or a gateway shows
// what lanes of another configuration, or of an earlier one, have kept.
func keepsInboxes(c *configs.Config) bool { return c.Gateway.Inbox || c.KeepsInboxes() }

// inboxes opens a user's; nil = none are kept. An inbox is found by its app alone: without
// apps nothing would be found, and a user called erased whose messages are all there.
func (a *app) inboxes(ctx context.Context, c *configs.Config, user string) (*erasedInboxes, error) {
	if !keepsInboxes(c) {
		return nil, nil
	}
	if len(c.Apps) == 0 {
		return nil, usagef("apps: must not be empty where inboxes are kept: the user's are found by their apps")
	}
	e := &erasedInboxes{store: a.inbox}
	if e.store == nil {
		tables, err := a.cassandraTables(ctx)
		if err != nil {
			return nil, err
		}
		e.store = inbox.New(wiring.InboxOptions(c, tables))
	}
	for _, app := range c.Apps {
		e.keys = append(e.keys, inbox.Key{User: user, App: app.Name})
	}
	return e, nil
}

// count is how many rows there are.
func (e *erasedInboxes) count(ctx context.Context) (rows int, err error) {
	for _, k := range e.keys {
		n, err := e.store.Count(ctx, k)
		if err != nil {
			return rows, err
		}
		rows += n
	}
	return rows, nil
}

// forget removes them.
func (e *erasedInboxes) forget(ctx context.Context) error {
	for _, k := range e.keys {
		if err := e.store.Forget(ctx, k); err != nil {
			return err
		}
	}
	return nil
}
