package status

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// With a configured data centre, a store uses no node of another one, even if
// there are no others.
func TestNodesOfAnotherDataCentre(t *testing.T) {
	n := startNode(t)
	for name, good := range map[string]bool{"dc1": true, "dc2": false} {
		opts := n.options()
		opts.LocalDC = name
		c, err := OpenCassandra(t.Context(), opts)
		if (err == nil) != good {
			t.Errorf("a node of dc1, for a store of %s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if err := c.Write(t.Context(), rowsOf("a1")); err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

// A sick session is replaced by the first one that can be opened. Requests on
// the old one finish there, and then it is closed.
func TestSessionIsReplaced(t *testing.T) {
	n := startNode(t)
	reg := prometheus.NewRegistry()
	opts := n.options()
	opts.Registry = reg
	c, err := OpenCassandra(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	old := c.cluster.use()
	hellos := n.count("hello")
	n.mu.Lock()
	n.answer = func(what string, times int) error {
		if what == "hello" && times <= hellos+1 {
			return frame{gocql.ErrCodeServer, "starting"}
		}
		return nil
	}
	n.mu.Unlock()
	c.cluster.mu.Lock()
	c.cluster.failing = time.Now() // no request has been answered since
	c.cluster.mu.Unlock()
	c.cluster.rebuild()
	await(t, "a new session", func() bool { return testutil.ToFloat64(c.metrics.rebuilds) == 1 })
	if err := old.Query("SELECT key FROM system.local").WithContext(t.Context()).Exec(); err != nil || old.Closed() {
		t.Errorf("who is at work on the old one: %v, closed %v", err, old.Closed())
	}
	old.done()
	await(t, "the old session closed", old.Closed)
	if err := c.Write(t.Context(), rowsOf("a1")); err != nil {
		t.Error(err)
	}
	if now := c.cluster.use(); now == old || now.Closed() {
		t.Error("the old session is in use")
	} else {
		now.done()
	}
	c.Close()
	if err := newMetrics().register(reg); err != nil {
		t.Errorf("a closed store's metrics are there still: %v", err)
	}
}

// If no new session can be opened, a session that has healed stays.
func TestSessionThatHealsStays(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	failed := make(chan struct{})
	c.cluster.opts.Log = slog.New(heard{slog.DiscardHandler, "cannot reconnect to cassandra, retrying", sync.OnceFunc(func() { close(failed) })})
	n.says("hello", frame{gocql.ErrCodeServer, "starting"})
	c.cluster.rebuild() // a request has been answered since
	<-failed
	n.says("hello", nil)
	time.Sleep(2 * firstReconnect) // longer than it would wait before another attempt
	if err := c.Ping(t.Context()); err != nil || testutil.ToFloat64(c.metrics.rebuilds) != 0 {
		t.Errorf("%v; replaced %v times", err, testutil.ToFloat64(c.metrics.rebuilds))
	}
}

// heard calls a function when a line is logged.
type heard struct {
	slog.Handler
	line string
	do   func()
}

func (h heard) Enabled(context.Context, slog.Level) bool { return true }

func (h heard) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.line {
		h.do()
	}
	return nil
}
