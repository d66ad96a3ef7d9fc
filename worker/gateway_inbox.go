package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/wiring"
)

// InboxStore is where a gateway's inboxes are kept.
type InboxStore interface {
	gateway.Inboxes
	inbox.News
	Check(ctx context.Context) error
	CheckTopics(ctx context.Context) error
}

// inboxState is the name of inboxes in /readyz.
const inboxState = "inbox"

// openInbox makes the gateway's inboxes, if it has some. It connects to nothing yet.
func (g *openGateway) openInbox() {
	if !g.Config.Gateway.Inbox {
		return
	}
	var store InboxStore = g.Inboxes
	if store == nil {
		g.inboxTables = &lateTables{err: errNotYet}
		store = inbox.New(wiring.InboxOptions(g.Config, g.inboxTables))
		g.aside.set(inboxState, errNotYet)
	}
	g.inboxStore = store
	g.inbox = &gateway.Inbox{Store: store, Limits: g.InboxLimits,
		Watcher: inbox.NewWatcher(inbox.WatcherOptions{News: store, Most: g.Config.Gateway.InboxWaits, Timeout: g.Config.Gateway.Status, Log: g.Log})}
}

// watchInbox tells those who wait of news, and connects to the tables, until ctx ends.
func (g *openGateway) watchInbox(ctx context.Context, watches *sync.WaitGroup) {
	if g.inbox == nil {
		return
	}
	watches.Go(func() { g.inbox.Watcher.Run(ctx) })
	if g.inboxTables != nil {
		watches.Go(func() { g.watchLate(ctx, inboxState, g.inboxTables, g.lookAtInbox) })
	}
}

// lookAtInbox says whether its tables are there.
func (g *openGateway) lookAtInbox(ctx context.Context) error {
	err := g.inboxStore.Check(ctx)
	if err == nil && g.Config.Gateway.Topics {
		err = g.inboxStore.CheckTopics(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w (pushctl schema apply)", err)
	}
	return nil
}

// watchLate connects to tables, and looks at them until ctx ends.
func (g *openGateway) watchLate(ctx context.Context, state string, tables *lateTables, look func(context.Context) error) {
	open := g.OpenTables
	if open == nil {
		open = openTables
	}
	err := connect(ctx, g.Log, g.aside, state, strings.Join(g.Config.Cassandra.Hosts, ","), func(ctx context.Context) error {
		return limited(ctx, 2*g.Config.Cassandra.Timeout, func(ctx context.Context) error {
			if _, err := tables.now(); err != nil {
				session, err := open(ctx, g.status)
				tables.set(session, err)
				if err != nil {
					return err
				}
			}
			return look(ctx)
		})
	})
	if err == nil {
		checkStore(ctx, g.aside, state, look)
	}
}
