package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// Tables is a session in the keyspace with the tables of topics.
type Tables interface {
	subscriptions.Tables
	Close()
}

// openTables connects to Cassandra.
func openTables(ctx context.Context, o status.Options) (Tables, error) {
	s, err := status.OpenSession(ctx, o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// topicsOf are the topics of a gateway; nil = it has none.
func (g *openGateway) topicsOf() gateway.Topics {
	if !g.Config.Gateway.Topics {
		return nil
	}
	if g.Topics != nil {
		return g.Topics
	}
	g.tables = &lateTables{err: errNotYet}
	g.topics = subscriptions.New(subscriptions.Options{Tables: g.tables, Concurrency: g.Config.Cassandra.Concurrency})
	g.aside.set(topicsState, errNotYet)
	return g.topics
}

// topicsState is the name of topics in /readyz.
const topicsState = "topics"

// watchTables connects to the tables of topics, and looks at them until ctx ends. A gateway
// without topics has none.
func (g *openGateway) watchTables(ctx context.Context, watches *sync.WaitGroup) {
	if g.tables == nil {
		return
	}
	watches.Go(func() { g.watchLate(ctx, topicsState, g.tables, g.lookAtTables) })
}

// lookAtTables says whether they are there.
func (g *openGateway) lookAtTables(ctx context.Context) error {
	if err := g.topics.Check(ctx); err != nil {
		return fmt.Errorf("%w (pushctl schema apply)", err)
	}
	if g.notes != nil {
		if err := g.notes.Check(ctx); err != nil {
			return fmt.Errorf("%w (pushctl schema apply)", err)
		}
	}
	if g.users != nil {
		if err := g.users.Check(ctx); err != nil {
			return fmt.Errorf("%w (pushctl schema apply)", err)
		}
	}
	return nil
}

// lateTables are tables in Cassandra, which may not be open yet. It is safe for concurrent use.
type lateTables struct {
	mu      sync.RWMutex
	session Tables // guarded by mu; nil = it is not open
	err     error  // guarded by mu; why
}

// set gives it a session, or says why there is none.
func (l *lateTables) set(session Tables, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err == nil {
		l.session = session
	}
}

func (l *lateTables) now() (Tables, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.session == nil {
		return nil, fmt.Errorf("the tables are not open: %w", l.err)
	}
	return l.session, nil
}

// Exec implements subscriptions.Tables.
func (l *lateTables) Exec(ctx context.Context, statement string, values ...any) error {
	s, err := l.now()
	if err != nil {
		return err
	}
	return s.Exec(ctx, statement, values...)
}

// Query implements subscriptions.Tables.
func (l *lateTables) Query(ctx context.Context, statement string, values, dest []any, row func()) error {
	s, err := l.now()
	if err != nil {
		return err
	}
	return s.Query(ctx, statement, values, dest, row)
}

func (l *lateTables) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		l.session.Close()
		l.session, l.err = nil, status.ErrClosed
	}
}
