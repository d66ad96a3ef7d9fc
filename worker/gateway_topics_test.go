package worker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// emptyTables are tables without a row.
type emptyTables struct {
	mu      sync.Mutex
	missing bool // guarded by mu; they are not there
	asked   int  // guarded by mu
	closed  int  // guarded by mu
}

func (e *emptyTables) Exec(context.Context, string, ...any) error { return nil }

func (e *emptyTables) Query(context.Context, string, []any, []any, func()) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	if e.missing {
		return errors.New("table topics does not exist")
	}
	return nil
}

func (e *emptyTables) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed++
}

// A gateway does not wait for the tables of topics: until they are there it says what is
// missing, and opens one session.
func TestTheTablesOfTopicsComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Gateway.Topics = true
		tables, attempts := &emptyTables{missing: true}, 0
		g := &openGateway{aside: newHealth(), GatewayOptions: &GatewayOptions{Config: c, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry(),
			OpenTables: func(context.Context, status.Options) (Tables, error) {
				if attempts++; attempts < 3 {
					return nil, errors.New("no route")
				}
				return tables, nil
			}}}
		topics := g.topicsOf()
		ctx, stop := context.WithCancel(t.Context())
		var watches sync.WaitGroup
		g.watchTables(ctx, &watches)
		says := func(want string) {
			t.Helper()
			synctest.Wait()
			if _, lines := g.aside.report(); !strings.Contains(strings.Join(lines, "\n"), want) {
				t.Errorf("it says %q, want %q", lines, want)
			}
		}
		says("no route")
		if _, err := topics.Topic(ctx, "offers"); err == nil || errors.Is(err, subscriptions.ErrNoTopic) || !strings.Contains(err.Error(), "no route") {
			t.Errorf("a topic without tables: %v", err)
		}
		time.Sleep(5 * time.Minute)
		says("pushctl schema apply")
		tables.mu.Lock()
		tables.missing = false
		tables.mu.Unlock()
		time.Sleep(5 * time.Minute)
		says("topics ok")
		if _, err := topics.Topic(ctx, "offers"); !errors.Is(err, subscriptions.ErrNoTopic) {
			t.Errorf("a topic that there is not: %v", err)
		}
		stop()
		watches.Wait()
		g.tables.close()
		g.tables.close()
		if attempts != 3 || tables.closed != 1 {
			t.Errorf("%d attempts to open, closed %d times", attempts, tables.closed)
		}
		if _, err := topics.Topic(t.Context(), "offers"); !errors.Is(err, status.ErrClosed) {
			t.Errorf("a topic after the end: %v", err)
		}
	})
}

// Without topics nothing is opened for them.
func TestAGatewayWithoutTopics(t *testing.T) {
	c := configs.Default()
	g := &openGateway{aside: newHealth(), GatewayOptions: &GatewayOptions{Config: c, Topics: subscriptions.NewMemory(nil)}}
	if g.topicsOf() != nil {
		t.Error("it has topics")
	}
	var watches sync.WaitGroup
	g.watchTables(t.Context(), &watches)
	watches.Wait()
	if _, lines := g.aside.report(); len(lines) != 0 {
		t.Errorf("it says %q", lines)
	}
}
