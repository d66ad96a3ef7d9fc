package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/cassandra"
	"github.com/pushfleet/pushfleet/push"
)

func TestSchemaText(t *testing.T) {
	text, err := SchemaText("pushfleet", SchemaOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text != cassandra.Schema() {
		t.Errorf("the schema with its defaults is not the file:\n%s", text)
	}
	for _, place := range []string{fileKeyspace, fileReplication, fileWindow, fileTTL} {
		want := 1
		if place == fileKeyspace {
			want = 3 + len(otherTables) + len(gatewayTables)
		}
		if got := strings.Count(text, place); got != want {
			t.Errorf("schema.cql has %q %d times, want %d: what is replaced would go wrong", place, got, want)
		}
	}
	text, err = SchemaText("ks_2", SchemaOptions{TTL: 60 * 24 * time.Hour, Replication: map[string]string{"dc2": "3", "class": "NetworkTopologyStrategy", "dc1": "3"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"EXISTS ks_2\n", "EXISTS ks_2.notification_status (", "{'class': 'NetworkTopologyStrategy', 'dc1': '3', 'dc2': '3'}",
		"default_time_to_live = 5184000", "'compaction_window_size': '48'",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("schema has no %q:\n%s", want, text)
		}
	}
}

// Each statement makes what it is taken for.
func TestSchemaHasItsTablesInOrder(t *testing.T) {
	statements, err := schemaStatements("k", SchemaOptions{})
	if err != nil || len(statements) != 3+len(otherTables)+len(gatewayTables) {
		t.Fatalf("%d statements, %v", len(statements), err)
	}
	for i, name := range slices.Concat([]string{tableName}, otherTables, gatewayTables) {
		if want := "CREATE TABLE IF NOT EXISTS k." + name + " ("; !strings.Contains(statements[2+i], want) {
			t.Errorf("statement %d has no %q", 2+i, want)
		}
	}
	if want := "CREATE TYPE IF NOT EXISTS k." + detailsType + " (\n  " + strings.Join(detailsFields, ",\n  ") + "\n)"; !strings.Contains(statements[1], want) {
		t.Errorf("statement 1 has no %q", want)
	}
}

// The file, the check of the table and the insert statement name the same
// columns.
func TestSchemaHasTheColumnsThatAreWritten(t *testing.T) {
	for _, name := range columns {
		if !strings.Contains(cassandra.Schema(), "\n  "+name+" "+columnTypes[name]+",") {
			t.Errorf("schema.cql has no column %s %s", name, columnTypes[name])
		}
	}
	if len(columnTypes) != len(columns) {
		t.Errorf("%d types for %d columns", len(columnTypes), len(columns))
	}
	for _, tt := range []struct {
		packed  bool
		columns []string
	}{
		{false, columns[:len(columns)-1]},
		{true, []string{"bucket", "id", "device", "step", "state", "details"}},
	} {
		rows := encodedRows{packed: tt.packed}
		if want := "(" + strings.Join(tt.columns, ",") + ")"; !strings.Contains(rows.insertRow(), want) {
			t.Errorf("packed %v: insert statement does not name %s", tt.packed, want)
		}
		if got := strings.Count(rows.insertRow(), "?"); got != rows.perRow()+1 {
			t.Errorf("packed %v: insert statement binds %d values, want the bucket and %d", tt.packed, got, rows.perRow())
		}
	}
	if want := "SELECT " + strings.Join(columns[1:], ",") + " FROM"; !strings.HasPrefix(selectRows, want) {
		t.Errorf("query does not read %s", want)
	}
}

func TestSchemaOptionsAreRefused(t *testing.T) {
	for _, tt := range []struct {
		why      string
		keyspace string
		opts     SchemaOptions
		want     string
	}{
		{"a keyspace that is CQL", "a; DROP KEYSPACE b", SchemaOptions{}, "keyspace"},
		{"capitals need quotes", "Push", SchemaOptions{}, "keyspace"},
		{"a TTL of minutes", "k", SchemaOptions{TTL: time.Minute}, "TTL"},
		{"a TTL that is more than Cassandra takes", "k", SchemaOptions{TTL: 21 * 365 * 24 * time.Hour}, "TTL"},
		{"replication without class", "k", SchemaOptions{Replication: map[string]string{"dc1": "3"}}, "class"},
		{"replication that is CQL", "k", SchemaOptions{Replication: map[string]string{"class": "X'}; --"}}, "character"},
	} {
		if _, err := SchemaText(tt.keyspace, tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.why, err, tt.want)
		}
	}
}

func TestWindowHours(t *testing.T) {
	for _, tt := range []struct {
		ttl  time.Duration
		want int
	}{
		{time.Hour, 1}, {30 * time.Hour, 1}, {30*time.Hour + time.Second, 2}, {30 * 24 * time.Hour, 24}, {365 * 24 * time.Hour, 292},
	} {
		if got := windowHours(tt.ttl); got != tt.want {
			t.Errorf("windowHours(%v) = %d, want %d", tt.ttl, got, tt.want)
		}
	}
}

func TestSplitStatements(t *testing.T) {
	got := splitStatements("-- a; b\nCREATE x\n  WITH y; -- z\n\nCREATE w\n;\n-- the end\n")
	if want := []string{"-- a; b\nCREATE x\n  WITH y", "CREATE w"}; !slices.Equal(got, want) {
		t.Errorf("statements %q, want %q", got, want)
	}
}

// Each limit of batches is that of the options.
func TestOptionsOfBatches(t *testing.T) {
	o := Options{FlushRows: 1, FlushBytes: 2, FlushLinger: 3, Lingering: 4, Concurrency: 5, Timeout: 6}
	m := o.merging()
	m.backoff = push.Backoff{}
	if want := (mergeOptions{rows: 1, bytes: 2, linger: 3, lingering: 4, concurrency: 5, timeout: 6}); m != want {
		t.Errorf("got %+v, want %+v", m, want)
	}
}

func TestOptionsAreRefused(t *testing.T) {
	good := Options{Hosts: []string{"c1"}}
	if o, err := good.withDefaults(); err != nil || o.FlushRows != 200 || o.FlushLinger != 50*time.Millisecond || o.Lingering != 2000 || o.Timeout != 5*time.Second || o.Consistency != "LOCAL_QUORUM" || o.Log == nil {
		t.Errorf("defaults: %+v, %v", o, err)
	}
	for _, tt := range []struct {
		why    string
		change func(*Options)
		want   string
	}{
		{"no hosts", func(o *Options) { o.Hosts = nil }, "hosts"},
		{"a port that is none", func(o *Options) { o.Hosts = []string{"c1:cql"} }, `"c1:cql"`},
		{"a keyspace that needs quotes", func(o *Options) { o.Keyspace = "K" }, "keyspace"},
		{"an unknown consistency", func(o *Options) { o.Consistency = "MOST" }, "MOST"},
		{"a negative time", func(o *Options) { o.Timeout = -1 }, "negative"},
		{"batches of nothing", func(o *Options) { o.FlushRows = -1 }, "rows a batch"},
		{"batches of too many rows", func(o *Options) { o.FlushRows = 10_001 }, "rows a batch"},
		{"batches of no bytes", func(o *Options) { o.FlushBytes = -1 }, "bytes a batch"},
		{"batches of a byte too many", func(o *Options) { o.FlushBytes = 8<<20 + 1 }, "bytes a batch"},
		{"a batch that goes before its first row", func(o *Options) { o.FlushLinger = -1 }, "negative"},
		{"no row that lingers", func(o *Options) { o.Lingering = -1 }, "linger"},
		{"rows that live less than no time", func(o *Options) { o.TTL = -1 }, "negative"},
		{"more batches than a node can bear", func(o *Options) { o.Concurrency = 1025 }, "concurrency"},
		{"no connections", func(o *Options) { o.Connections = -1 }, "connections"},
		{"batches above what a mutation may hold", func(o *Options) { o.FlushBytes = 17 << 20 }, "bytes a batch"},
		{"no batch at all", func(o *Options) { o.Concurrency = -1 }, "concurrency"},
		{"layouts that lose ids", func(o *Options) { o.Layouts = Layouts{} }, "layout"},
	} {
		o := good
		tt.change(&o)
		if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q in it", tt.why, err, tt.want)
		}
	}
}

// The smallest and largest allowed value of each.
func TestOptionsAtTheirLimits(t *testing.T) {
	for i, o := range []Options{
		{FlushRows: 1, FlushBytes: 1, FlushLinger: 1, Concurrency: 1, Connections: 1, Timeout: 1, TTL: 1},
		{FlushRows: 10_000, FlushBytes: 8 << 20, Concurrency: 1024},
		{Keyspace: "k" + strings.Repeat("_", 47), Consistency: "local_quorum"},
	} {
		o.Hosts = []string{"h:65535"}
		if _, err := o.withDefaults(); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
	const year = 365 * 24 * time.Hour
	for ttl, good := range map[time.Duration]bool{
		time.Hour: true, time.Hour - time.Second: false, time.Hour + time.Millisecond: false, 20 * year: true, 20*year + time.Second: false,
	} {
		if _, err := (SchemaOptions{TTL: ttl}).ttl(); (err == nil) != good {
			t.Errorf("a TTL of %v: %v", ttl, err)
		}
	}
}
