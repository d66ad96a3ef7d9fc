package status_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/status/statustest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet drops the log of a store whose server misbehaves on purpose.
var quiet = slog.New(slog.DiscardHandler)

// liveness bounds what must happen eventually; a loaded machine may need most
// of it.
const liveness = time.Minute

func newKeyspace() string { return "t" + strings.ReplaceAll(uuid.NewString(), "-", "") }

// apply creates the schema in a keyspace of its own.
func apply(t testing.TB, opts status.Options) status.Options {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	if opts.Keyspace == "" {
		opts.Keyspace = newKeyspace()
	}
	if _, err := status.ApplySchema(ctx, opts, status.SchemaOptions{}); err != nil {
		t.Fatal(err)
	}
	return opts
}

func open(t testing.TB, opts status.Options) *status.Cassandra {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	c, err := status.OpenCassandra(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func shared(t testing.TB) status.Options {
	t.Helper()
	return status.Options{Hosts: []string{localtest.Require(t).Cassandra}, Log: quiet}
}

// session connects to Cassandra apart from the store. The caller closes it.
func session(t *testing.T, opts status.Options) *gocql.Session {
	t.Helper()
	cluster := gocql.NewCluster(opts.Hosts...)
	cluster.Keyspace, cluster.ProtoVersion, cluster.Timeout = opts.Keyspace, 4, liveness
	s, err := cluster.CreateSession()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// query runs CQL apart from the store's own statements.
func query(t *testing.T, opts status.Options, cql string, scan ...any) {
	t.Helper()
	s := session(t, opts)
	defer s.Close()
	var err error
	if len(scan) == 0 {
		err = s.Query(cql).Exec()
	} else {
		err = s.Query(cql).Scan(scan...)
	}
	if err != nil {
		t.Fatalf("%s: %v", cql, err)
	}
}

func delivered(n int) []push.Row {
	rows := make([]push.Row, n)
	for i := range rows {
		rows[i] = push.Row{ID: uuid.Must(uuid.NewV7()).String(), Device: "abcdefghijklmnop", State: push.StateDelivered,
			At: time.Now(), Platform: push.APNS, ProviderID: "f2b1a1c0-0000-4000-8000-000000000000", UserHash: uint64(i)}
	}
	return rows
}

// expectStored fails unless each row's id has rows.
func expectStored(t *testing.T, c *status.Cassandra, rows []push.Row) {
	t.Helper()
	ids := make([]string, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	got, err := c.Read(ctx, ids)
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for i := range got {
		if len(got[i]) == 0 {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d acknowledged rows are missing", missing, len(rows))
	}
}

func TestCassandra(t *testing.T) {
	opts := apply(t, shared(t))
	c := open(t, opts)
	statustest.Run(t, c)
	opts.PackedRows = true
	statustest.Run(t, open(t, opts))
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRowsLiveAsLongAsTheTTL(t *testing.T) {
	opts := apply(t, shared(t))
	c := open(t, opts)
	row := delivered(1)[0]
	row.Reason = "OK"
	if err := c.Write(t.Context(), []push.Row{row}); err != nil {
		t.Fatal(err)
	}
	var ttl int
	var written int64
	query(t, opts, fmt.Sprintf("SELECT TTL(reason), WRITETIME(reason) FROM notification_status WHERE bucket=%d AND id='%s'", c.Bucket(row.ID), row.ID), &ttl, &written)
	if month := int(30 * 24 * time.Hour / time.Second); ttl > month || ttl < month-600 {
		t.Errorf("a new row lives %d s, want 30 days", ttl)
	}
	if written != row.At.UnixMicro() {
		t.Errorf("written at %d us, want the row's own time %d", written, row.At.UnixMicro())
	}
}

// A fleet whose setting is changed writes the same rows in both formats. Each is read
// as it was written last, and cqlsh shows what a packed one has by the names of its fields.
func TestRowsInBothFormats(t *testing.T) {
	opts := apply(t, shared(t))
	packing := opts
	packing.PackedRows = true
	inColumns, packed := open(t, opts), open(t, packing)
	rows := delivered(2)
	write := func(c *status.Cassandra, row push.Row) {
		t.Helper()
		if err := c.Write(t.Context(), []push.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	later := slices.Clone(rows)
	for i := range later {
		rows[i].At = rows[i].At.Truncate(time.Millisecond).UTC()
		later[i].At, later[i].ProviderID, later[i].Reason = rows[i].At.Add(time.Second), "", "later"
	}
	write(inColumns, rows[0])
	write(packed, later[0])
	write(packed, rows[1])
	write(inColumns, later[1])
	for _, c := range []*status.Cassandra{inColumns, packed} {
		got, err := c.Read(t.Context(), []string{rows[0].ID, rows[1].ID})
		if err != nil || len(got[0]) != 1 || len(got[1]) != 1 || got[0][0] != later[0] || got[1][0] != later[1] {
			t.Errorf("got %+v, %v, want %+v", got, err, later)
		}
	}
	var user int64
	query(t, opts, fmt.Sprintf("SELECT details.user_hash FROM notification_status WHERE bucket=%d AND id='%s'", packed.Bucket(rows[1].ID), rows[1].ID), &user)
	if uint64(user) != rows[1].UserHash {
		t.Errorf("the user is %d, want %d", user, rows[1].UserHash)
	}
}

// A table of the release before gets the column, and its rows are read as before.
func TestTableOfTheReleaseBefore(t *testing.T) {
	opts := shared(t)
	opts.Keyspace = newKeyspace()
	query(t, shared(t), "CREATE KEYSPACE "+opts.Keyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	query(t, opts, "CREATE TABLE notification_status (bucket bigint, id text, device text, step smallint, state tinyint, at timestamp, provider tinyint, provider_id text, reason text, user_hash bigint, place bigint, "+
		"PRIMARY KEY ((bucket), id, device, step, state)) WITH default_time_to_live = 2592000")
	row := delivered(1)[0]
	row.At = row.At.Truncate(time.Millisecond).UTC()
	query(t, opts, fmt.Sprintf("INSERT INTO notification_status (bucket,id,device,step,state,at,provider,provider_id,user_hash) VALUES (%d,'%s','%s',0,10,%d,1,'%s',%d)",
		status.DefaultLayouts().Bucket(row.ID), row.ID, row.Device, row.At.UnixMilli(), row.ProviderID, row.UserHash))
	if _, err := status.OpenCassandra(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "column details frozen<notification_details> does not exist; type notification_details does not exist") {
		t.Errorf("without the column: %v", err)
	}
	changes, err := status.ApplySchema(t.Context(), opts, status.SchemaOptions{})
	if err != nil || changes[1].Action != "created" || changes[2].Action != "altered" || changes[2].Detail != "column details added" {
		t.Fatalf("%+v, %v", changes, err)
	}
	got, err := open(t, opts).Read(t.Context(), []string{row.ID})
	if err != nil || len(got[0]) != 1 || got[0][0] != row {
		t.Errorf("%+v, %v, want %+v", got, err, row)
	}
}

// The share of confirmed notifications is counted by ids, each once per read,
// not by queries, which ask for up to 100 ids.
func TestReadsCountTheirIDs(t *testing.T) {
	reg := prometheus.NewRegistry()
	opts := apply(t, shared(t))
	opts.Registry = reg
	c := open(t, opts)
	rows := delivered(250)
	ids := []string{rows[0].ID} // the same id twice
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	if _, err := c.Read(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
	want := "# HELP push_status_read_ids_total Ids that were answered by confirm reads.\n" +
		"# TYPE push_status_read_ids_total counter\npush_status_read_ids_total 250\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "push_status_read_ids_total"); err != nil {
		t.Error(err)
	}
}

func TestRowsOfABucketGoAsOneBatch(t *testing.T) {
	reg := prometheus.NewRegistry()
	opts := apply(t, shared(t))
	opts.Registry, opts.FlushLinger = reg, 300*time.Millisecond // long enough for all writers
	opts.Layouts = status.Layouts{{Slice: time.Hour, Shards: 2}}
	c := open(t, opts)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := c.Write(t.Context(), delivered(50)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	// 400 rows, two shards, and an hour that may end meanwhile: two to eight
	// batches instead of 400.
	const name = "push_status_batch_rows"
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			if n := f.Metric[0].GetHistogram().GetSampleCount(); n > 8 {
				t.Errorf("400 rows of 2 buckets went as %d batches", n)
			}
		}
	}
	if n, err := testutil.GatherAndCount(reg, name); n != 1 || err != nil {
		t.Errorf("%d metrics called %s (%v)", n, name, err)
	}
}

// The server's limits for the size of a batch count only for batches of several
// partitions: a batch far above the 50 KiB at which those fail is accepted.
func TestLargeBatchOfOnePartitionIsTaken(t *testing.T) {
	opts := apply(t, shared(t))
	opts.FlushRows, opts.FlushBytes = 4000, 1<<20
	opts.Layouts = status.Layouts{{Slice: time.Hour, Shards: 1}}
	c := open(t, opts)
	rows := delivered(3000) // about 500 KiB
	ctx, cancel := context.WithTimeout(t.Context(), liveness)
	defer cancel()
	if err := c.Write(ctx, rows); err != nil {
		t.Fatal(err)
	}
	expectStored(t, c, rows)
}

func TestSchemaIsCheckedAtTheStart(t *testing.T) {
	base := shared(t)
	check := func(why string, opts status.Options, want string) {
		t.Helper()
		_, err := status.OpenCassandra(t.Context(), opts)
		var missing *status.SchemaError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want a SchemaError with %q", why, err, want)
		}
	}
	none := base
	none.Keyspace = newKeyspace()
	check("no keyspace", none, "keyspace "+none.Keyspace+" does not exist")

	wrong := base
	wrong.Keyspace = newKeyspace()
	query(t, base, "CREATE KEYSPACE "+wrong.Keyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	check("no table", wrong, "table notification_status does not exist")
	query(t, wrong, "CREATE TABLE notification_status (bucket bigint, id text, device text, step int, state tinyint, at timestamp, provider tinyint, reason text, user_hash bigint, PRIMARY KEY (bucket, id, device, state, step))")
	check("a column of another type", wrong, "column step is int, want smallint")
	check("no column", wrong, "column provider_id text does not exist")
	check("another key", wrong, "primary key is (bucket, id, device, state, step), want (bucket, id, device, step, state)")
	changes, err := status.ApplySchema(t.Context(), wrong, status.SchemaOptions{})
	if err == nil || !strings.Contains(err.Error(), "step is int") || len(changes) != 1 || changes[0].Action != "exists" {
		t.Errorf("apply over another table: did %+v, %v", changes, err)
	}

	short := apply(t, base)
	short.TTL = 31 * 24 * time.Hour
	check("rows that die too early", short, "default_time_to_live is 2592000 seconds, want at least 2678400")
	changes, err = status.ApplySchema(t.Context(), short, status.SchemaOptions{TTL: short.TTL})
	if err != nil || changes[2].Action != "altered" {
		t.Fatalf("apply with another TTL: %+v, %v", changes, err)
	}
	open(t, short)
	query(t, short, "ALTER TABLE notification_status ADD note text") // added by somebody else
	open(t, short)
}

func TestSecuredServer(t *testing.T) {
	access := localtest.Access(t)
	server := localtest.Cassandra(t, local.CassandraOptions{Access: access})
	good := status.Options{Hosts: []string{server.Addr()}, Username: access.User, Password: access.Password, TLS: access.CA.ClientConfig(), Log: quiet, Timeout: 10 * time.Second}
	c := open(t, apply(t, good))
	statustest.Run(t, c)

	stranger, err := local.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		why    string
		change func(*status.Options)
		want   string
	}{
		{"a wrong password", func(o *status.Options) { o.Password = "hunter2" }, "incorrect"},
		{"no user", func(o *status.Options) { o.Username = "" }, ""},
		{"no TLS", func(o *status.Options) { o.TLS = nil }, ""},
		{"a certificate of another authority", func(o *status.Options) { o.TLS = stranger.ClientConfig() }, "certificate"},
		{"a certificate of another name", func(o *status.Options) { o.TLS = o.TLS.Clone(); o.TLS.ServerName = "other.example" }, "other.example"},
	} {
		opts := good
		if tt.want == "" {
			opts.Timeout = 3 * time.Second // the server may not answer at all
		}
		tt.change(&opts)
		ctx, cancel := context.WithTimeout(t.Context(), liveness)
		_, err := status.OpenCassandra(ctx, opts)
		cancel()
		if err == nil {
			t.Errorf("%s: let in", tt.why)
			continue
		}
		if !strings.Contains(err.Error(), server.Addr()) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %q does not say where and why (%q)", tt.why, err, tt.want)
		}
		if strings.Contains(err.Error(), access.Password) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %q tells a password", tt.why, err)
		}
	}
}
