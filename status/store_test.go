package status

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status/statustest"
)

// patience ends a wait that hangs.
const patience = 2 * time.Minute

func (n *node) options() Options {
	return Options{Hosts: []string{n.addr()}, Keyspace: "k", Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

func (n *node) open(t *testing.T) *Cassandra {
	t.Helper()
	c, err := OpenCassandra(t.Context(), n.options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// The store passes the suite of every status store, over a wire, in either
// format of rows.
func TestStoreOverAWire(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	statustest.Run(t, c)
	packing := n.options()
	packing.PackedRows = true
	packed, err := OpenCassandra(t.Context(), packing)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	statustest.Run(t, packed)
	n.mu.Lock()
	formats := slices.Collect(maps.Values(n.packed))
	n.mu.Unlock()
	if !slices.Contains(formats, true) || !slices.Contains(formats, false) {
		t.Error("no row was written in the column details, or all were")
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := c.Bucket("0199f3c2-8a00-7b11-8c22-6d3344e55f66"), DefaultLayouts().Bucket("0199f3c2-8a00-7b11-8c22-6d3344e55f66"); got != want {
		t.Errorf("bucket %d, want %d", got, want)
	}
}

// Opening fails if something is wrong, and says what it is.
func TestStoreIsNotOpened(t *testing.T) {
	taken := prometheus.NewRegistry()
	if err := newMetrics().register(taken); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why    string
		schema *catalogue
		change func(*Options)
		want   string
	}{
		{"a setting that cannot work", asMade(), func(o *Options) { o.FlushRows = -1 }, "rows a batch"},
		{"nobody is there", asMade(), func(o *Options) { o.Hosts = []string{"127.0.0.1:1"} }, "connecting to cassandra 127.0.0.1:1"},
		{"no keyspace", &catalogue{}, nil, "keyspace k does not exist"},
		{"no table", &catalogue{replication: asMade().replication}, nil, "table notification_status does not exist"},
		{"rows that die too early", asMade(), func(o *Options) { o.TTL = 2 * time.Hour }, "default_time_to_live"},
		{"no answer about the schema", with(func(c *catalogue) { c.fails = ".tables" }), nil, "checking schema of cassandra"},
		{"metrics that are there already", asMade(), func(o *Options) { o.Registry = taken }, "registering status metrics"},
	} {
		n := startNode(t)
		n.schema = tt.schema
		opts := n.options()
		if tt.change != nil {
			tt.change(&opts)
		}
		c, err := OpenCassandra(t.Context(), opts)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
		var missing *SchemaError
		if schema := strings.Contains(tt.want, "exist") || strings.Contains(tt.want, "live"); errors.As(err, &missing) != schema {
			t.Errorf("%s: is a matter of the schema: %v", tt.why, !schema)
		}
	}
}

// A server that fails after its schema was checked is down.
func TestStoreIsNotOpenedHalfway(t *testing.T) {
	n := startNode(t)
	n.answer = func(what string, _ int) error {
		if what == "hello" && n.asked["schema"] > 0 {
			return frame{gocql.ErrCodeServer, "it stops"}
		}
		return nil
	}
	if c, err := OpenCassandra(t.Context(), n.options()); err == nil || c != nil || !strings.Contains(err.Error(), "it stops") {
		t.Errorf("opened %v: %v", c != nil, err)
	}
	if n.count("schema") == 0 {
		t.Error("the schema was not looked at")
	}
}

// A schema that was created can be used, and creating it again changes nothing.
func TestSchemaIsAppliedOverAWire(t *testing.T) {
	n := startNode(t)
	n.schema = &catalogue{replication: asMade().replication}
	changes, err := ApplySchema(t.Context(), n.options(), SchemaOptions{})
	if err != nil || len(changes) != 3+len(otherTables) || changes[1].Action != "created" || changes[2].Action != "created" || len(n.schema.told) != 2 {
		t.Errorf("a table that is not there: %+v, %v", changes, err)
	}
	for _, tt := range []struct {
		why    string
		host   string
		schema SchemaOptions
		fails  string
		want   string
	}{
		{"no hosts", "", SchemaOptions{}, "", "no hosts"},
		{"a TTL of minutes", n.addr(), SchemaOptions{TTL: time.Minute}, "", "TTL"},
		{"nobody is there", "127.0.0.1:1", SchemaOptions{}, "", "connecting"},
		{"a question without answer", n.addr(), SchemaOptions{}, ".keyspaces", "applying schema to cassandra"},
	} {
		opts := n.options()
		if opts.Hosts = []string{tt.host}; tt.host == "" {
			opts.Hosts = nil
		}
		n.mu.Lock()
		n.schema.fails = tt.fails
		n.mu.Unlock()
		if _, err := ApplySchema(t.Context(), opts, tt.schema); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
	}
}

// A batch that is refused is sent again unchanged, and the error is available
// to those who ask for the cause.
func TestBatchIsSentAgainOverAWire(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	n.mu.Lock()
	n.answer = func(what string, times int) error {
		if what == "write" && times == 1 {
			return frame{gocql.ErrCodeUnauthorized, "no MODIFY"}
		}
		return nil
	}
	n.mu.Unlock()
	rows := rowsOf("a1", "a1", "a1")
	for i := range rows {
		rows[i].Step = int16(i)
	}
	if err := c.Write(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(n.batches, []int{3}) || n.count("write") != 2 {
		t.Errorf("batches of %v rows by %d requests, want one of 3 by two", n.batches, n.count("write"))
	}
	if got := testutil.ToFloat64(c.metrics.writes[refused]); got != 3 {
		t.Errorf("%v rows were refused, want 3", got)
	}
	found, err := c.Read(t.Context(), []string{"a1"})
	if err != nil || !slices.EqualFunc(found[0], rows, func(a, b push.Row) bool { return a.Step == b.Step && a.At.Equal(b.At) }) {
		t.Errorf("found %+v, %v", found, err)
	}
	n.says("write", frame{gocql.ErrCodeUnauthorized, "no MODIFY"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Write(ctx, rowsOf("b1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a batch that is refused for ever: %v", err)
	}
}
