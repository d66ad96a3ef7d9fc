package status

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/pipeline"
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

// The store keeps what every status store has to, also over a wire.
func TestStoreOverAWire(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	statustest.Run(t, c)
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := c.Bucket("0199f3c2-8a00-7b11-8c22-6d3344e55f66"), DefaultLayouts().Bucket("0199f3c2-8a00-7b11-8c22-6d3344e55f66"); got != want {
		t.Errorf("bucket %d, want %d", got, want)
	}
}

// What is not as it has to be ends the start, and says what it is.
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

// What is made can be used, and making it again changes nothing.
func TestSchemaIsAppliedOverAWire(t *testing.T) {
	n := startNode(t)
	n.schema = &catalogue{replication: asMade().replication}
	changes, err := ApplySchema(t.Context(), n.options(), SchemaOptions{})
	if err != nil || len(changes) != 2 || changes[1].Action != "created" || len(n.schema.told) != 1 {
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

// minted are ids of one second, which have at most 16 buckets.
func minted(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("0199f3c2-8a00-7b11-8c22-%012x", i)
	}
	return ids
}

// Ids of a bucket are asked for by the hundred, each once, and each has its own
// rows, however often and in what order it was asked for.
func TestReadAsksByTheHundred(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	c.opts.Layouts = Layouts{{Slice: time.Hour, Shards: 1}}
	c.merger.bucket = c.opts.Layouts.Bucket
	ids := append(minted(250), "campaign-1", "campaign-2")
	if err := c.Write(t.Context(), rowsOf(ids[10:]...)); err != nil {
		t.Fatal(err)
	}
	asked := append(slices.Clone(ids), ids[20], ids[20], ids[0], "campaign-2")
	found, err := c.Read(t.Context(), asked)
	if err != nil || len(found) != len(asked) {
		t.Fatalf("%d answers to %d questions, %v", len(found), len(asked), err)
	}
	for i, rows := range found {
		if missing := slices.Index(ids, asked[i]) < 10; missing && rows != nil || !missing && (len(rows) != 1 || rows[0].ID != asked[i]) {
			t.Errorf("answer %d, of %s: %+v", i, asked[i], rows)
		}
	}
	found[20][0].Reason = "the caller's"
	if found[252][0].Reason != "" || found[253][0].Reason != "" {
		t.Error("two answers of one id share memory")
	}
	slices.Sort(n.reads)
	if !slices.Equal(n.reads, []int{1, 1, 50, 100, 100}) {
		t.Errorf("asked for %v ids", n.reads)
	}
	if got := testutil.ToFloat64(c.metrics.readIDs); got != float64(len(ids)) {
		t.Errorf("%v ids are counted, want %d", got, len(ids))
	}
	if got := testutil.ToFloat64(c.metrics.reads[noFailure]); got != 5 {
		t.Errorf("%v queries are counted, want 5", got)
	}
}

// A read of many partitions has as many goroutines as the store has places, not
// one for each.
func TestReadIsBounded(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	c.opts.Concurrency = 1
	n.says("read", errSilent)
	ids := make([]string, 5000)
	for i := range ids {
		ids[i] = fmt.Sprint("campaign-", i)
	}
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Read(ctx, ids)
		done <- err
	}()
	await(t, "the first queries", func() bool { return n.count("read") >= fullWeight })
	if more := runtime.NumGoroutine() - before; more > 100 {
		t.Errorf("%d goroutines read", more)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a read that nobody waits for: %v", err)
	}
}

// A confirm query that fails is asked again, and only an answer is believed.
func TestReadIsTriedAgain(t *testing.T) {
	for _, failure := range []error{
		frame{gocql.ErrCodeOverloaded, "too much"}, frame{gocql.ErrCodeUnavailable, "away"}, frame{gocql.ErrCodeReadTimeout, "slow"}, errHangUp,
	} {
		n := startNode(t)
		c := n.open(t)
		if err := c.Write(t.Context(), rowsOf("a1")); err != nil {
			t.Fatal(err)
		}
		n.mu.Lock()
		n.answer = func(what string, times int) error {
			if what == "read" && times <= 2 {
				return failure
			}
			return nil
		}
		n.mu.Unlock()
		found, err := c.Read(t.Context(), []string{"a1"})
		if err != nil || len(found[0]) != 1 || n.count("read") != 3 {
			t.Errorf("%v: %v, %v after %d questions", failure, found, err, n.count("read"))
		}
		if got := testutil.ToFloat64(c.metrics.readIDs); got != 1 {
			t.Errorf("%v: %v ids are counted", failure, got)
		}
	}
}

// A query that has failed for its time is given up with what it met; so is one
// that rests between two attempts when nobody wants it any more.
func TestReadGivesUp(t *testing.T) {
	refusal := frame{gocql.ErrCodeUnauthorized, "no SELECT"}
	stopped := errors.New("the worker stops")
	for _, tt := range []struct {
		why  string
		rest time.Duration // before the next attempt, of two hours
		end  func(c *Cassandra, cancel context.CancelCauseFunc)
		want error
	}{
		{"it is too late for another attempt", 5 * time.Hour, nil, gocql.RequestError(refusal)},
		{"nobody waits any more", time.Hour, func(_ *Cassandra, cancel context.CancelCauseFunc) { cancel(stopped) }, stopped},
		{"the store is closed", time.Hour, func(c *Cassandra, _ context.CancelCauseFunc) { c.Close() }, ErrClosed},
	} {
		n := startNode(t)
		c := n.open(t)
		c.opts.Timeout, c.merger.opts.backoffMin, c.merger.opts.backoffMax = 2*time.Hour, tt.rest, tt.rest
		n.says("read", refusal)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := c.Read(ctx, []string{"a1"})
			done <- err
		}()
		if tt.end != nil {
			await(t, "the first attempt", func() bool { return testutil.ToFloat64(c.metrics.reads[refused]) == 1 })
			tt.end(c, cancel)
		}
		err := <-done
		cancel(nil)
		if says := "reading 1 notifications from cassandra " + n.addr(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", tt.why, err, says)
		}
		if tt.want != ErrClosed && !strings.Contains(err.Error(), refusal.text) || tt.end != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v and what it met", tt.why, err, tt.want)
		}
	}
}

// A server that says nothing fails an attempt after its time, with words for
// how long that was.
func TestNodeThatSaysNothing(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	c.opts.Timeout = 50 * time.Millisecond
	for what, do := range map[string]func() error{
		"read": func() error { _, err := c.Read(t.Context(), []string{"a1"}); return err },
		"ping": func() error { return c.Ping(t.Context()) },
	} {
		n.says(what, errSilent)
		if err := do(); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), n.addr()) {
			t.Errorf("%s: %v", what, err)
		}
		if c.cluster.trouble() == nil {
			t.Errorf("%s: nobody else hears of it", what)
		}
		n.says(what, nil)
		c.opts.Timeout = time.Minute
		if err := do(); err != nil || c.cluster.trouble() != nil {
			t.Errorf("%s, of a server that answers again: %v, %v", what, err, c.cluster.trouble())
		}
		c.opts.Timeout = 50 * time.Millisecond
	}
}

// A batch that is refused is sent again as it was, and what it met is known to
// who asks for a reason.
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
	if err != nil || !slices.EqualFunc(found[0], rows, func(a, b pipeline.Row) bool { return a.Step == b.Step && a.At.Equal(b.At) }) {
		t.Errorf("found %+v, %v", found, err)
	}
	n.says("write", frame{gocql.ErrCodeUnauthorized, "no MODIFY"})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Write(ctx, rowsOf("b1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a batch that is refused for ever: %v", err)
	}
}

// A session that is sick is replaced by the first that can be opened; who is at
// work on the old one ends there, and it is closed behind him.
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
	c.cluster.failing = time.Now() // nobody has had an answer since
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

// While no new session can be opened, one that has healed stays.
func TestSessionThatHealsStays(t *testing.T) {
	n := startNode(t)
	c := n.open(t)
	n.says("hello", frame{gocql.ErrCodeServer, "starting"})
	c.cluster.rebuild() // a request was answered since
	hellos := n.count("hello")
	await(t, "an attempt", func() bool { return n.count("hello") > hellos })
	await(t, "the end of the attempts", func() bool {
		before := n.count("hello")
		time.Sleep(2 * reconnectMin)
		return n.count("hello") == before
	})
	n.says("hello", nil)
	if err := c.Ping(t.Context()); err != nil || testutil.ToFloat64(c.metrics.rebuilds) != 0 {
		t.Errorf("%v; replaced %v times", err, testutil.ToFloat64(c.metrics.rebuilds))
	}
}
