package status

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/push"
)

// A batch's statements are bound to their rows' own values in the statement's
// order, after the bucket. A missing value is unset, so that it writes no
// tombstone. The memory is reused for batches of any size, and keeps nothing of
// them.
func TestBoundRows(t *testing.T) {
	for _, packed := range []bool{false, true} {
		testBoundRows(t, packed)
	}
}

func testBoundRows(t *testing.T, packed bool) {
	t.Helper()
	var bound boundRows
	for _, n := range []int{1, 7, 200, 3, 201, 1} {
		rows := encodedRows{packed: packed}
		perRow := rows.perRow()
		for i := range n {
			r := push.Row{ID: fmt.Sprintf("id %d", i), Device: fmt.Sprintf("d%d", i), Step: int16(i), State: push.StateDelivered,
				At: time.UnixMilli(int64(1e12 + i)), UserHash: uint64(i)}
			if i%2 == 1 {
				r.ProviderID, r.Reason = fmt.Sprintf("p%d", i), "gone"
			}
			rows.append(&r)
		}
		bound.bind(77, &rows)
		if len(bound.entries) != n {
			t.Fatalf("%d statements of %d rows", len(bound.entries), n)
		}
		start := int32(0)
		for i, e := range bound.entries {
			if e.Stmt != rows.insertRow() || !e.Idempotent || len(e.Args) != 1+perRow {
				t.Fatalf("row %d: %d arguments of %q, idempotent %v", i, len(e.Args), e.Stmt, e.Idempotent)
			}
			if got := marshalled(t, e.Args[0]); binary.BigEndian.Uint64(got) != 77 {
				t.Errorf("row %d: bucket %x", i, got)
			}
			for j, arg := range e.Args[1:] {
				end := rows.ends[i*perRow+j]
				if end < 0 {
					if arg != gocql.UnsetValue {
						t.Errorf("row %d, value %d of none is %v", i, j, arg)
					}
					start = ^end
					continue
				}
				if got := marshalled(t, arg); !bytes.Equal(got, rows.data[start:end]) {
					t.Errorf("row %d, value %d is %q, want %q", i, j, got, rows.data[start:end])
				}
				start = end
			}
		}
		bound.clear()
		for i := range n * perRow {
			if bound.values[1+i].data != nil {
				t.Fatalf("keeps value %d", i)
			}
		}
	}
}

func marshalled(t *testing.T, arg any) []byte {
	t.Helper()
	m, is := arg.(gocql.Marshaler)
	if !is {
		t.Fatalf("%T is not encoded", arg)
	}
	b, err := m.MarshalCQL(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The promises of delivery depend on the driver's settings: it repeats nothing
// by itself, gives rows no timestamp of its own, uses the configured
// consistency, and returns to a node within seconds.
func TestWhatTheDriverIsTold(t *testing.T) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS13}
	o, err := Options{Hosts: []string{"10.0.0.1:9999"}, Keyspace: "pushfleet", Username: "u", Password: "p", TLS: tlsConfig,
		Timeout: 3 * time.Second, Connections: 3, Consistency: "LOCAL_QUORUM", LocalDC: "dc1", Layouts: DefaultLayouts(),
		Log: slog.New(slog.DiscardHandler)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	d := &dialer{}
	c, policy := o.cluster("pushfleet", d)
	if c.RetryPolicy != nil || c.DefaultTimestamp || !c.DefaultIdempotence || c.Consistency != gocql.LocalQuorum || c.ProtoVersion != 4 {
		t.Errorf("retries %v, own times %v, idempotence %v, consistency %v, protocol %d",
			c.RetryPolicy, c.DefaultTimestamp, c.DefaultIdempotence, c.Consistency, c.ProtoVersion)
	}
	if c.Timeout != o.Timeout || c.WriteTimeout != o.Timeout || c.ConnectTimeout != o.Timeout || c.NumConns != 3 || c.Port != 9999 {
		t.Errorf("time-outs %v, %v, %v, %d connections, port %d", c.Timeout, c.WriteTimeout, c.ConnectTimeout, c.NumConns, c.Port)
	}
	if c.ReconnectInterval <= 0 || c.ReconnectInterval > 5*time.Second {
		t.Errorf("a node that was down is tried again after %v", c.ReconnectInterval)
	}
	if c.Dialer != gocql.Dialer(d) || c.PoolConfig.HostSelectionPolicy != gocql.HostSelectionPolicy(policy) || c.Keyspace != "pushfleet" {
		t.Error("not our dialer, policy or keyspace")
	}
	if a, is := c.Authenticator.(gocql.PasswordAuthenticator); !is || a.Username != "u" || a.Password != "p" {
		t.Errorf("authenticates as %T", c.Authenticator)
	}
	if c.SslOpts == nil || c.SslOpts.Config != tlsConfig || !c.SslOpts.EnableHostVerification {
		t.Errorf("TLS %+v", c.SslOpts)
	}
	if p, is := c.ReconnectionPolicy.(*gocql.ConstantReconnectionPolicy); !is || p.MaxRetries != 1 || p.Interval > time.Second {
		t.Errorf("a pool without connections waits for %+v", c.ReconnectionPolicy)
	}
	if c.HostFilter == nil {
		t.Error("nodes of other data centres are used")
	}

	o.Hosts, o.Username, o.TLS, o.LocalDC = []string{"10.0.0.1"}, "", nil, ""
	if c, _ := o.cluster("k", d); c.Port != 9042 || c.Authenticator != nil || c.SslOpts != nil || c.HostFilter != nil {
		t.Errorf("a bare host is told port %d, %T, %v, filter %v", c.Port, c.Authenticator, c.SslOpts, c.HostFilter != nil)
	}
}

// The first id of a layout belongs to it, to the millisecond, and the id before
// it to the previous layout.
func TestLayoutBeginsWithItsTime(t *testing.T) {
	second := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	third := second.AddDate(1, 0, 0)
	grown := append(DefaultLayouts(), Layout{Since: second, Slice: time.Minute, Shards: 64}, Layout{Since: third, Slice: time.Minute, Shards: 4})
	for _, tt := range []struct {
		minted time.Time
		want   int
	}{
		{second.Add(-time.Millisecond), 16}, {second, 64}, {third.Add(-time.Millisecond), 64}, {third, 4}, {third.AddDate(1, 0, 0), 4},
	} {
		shards := map[int64]bool{}
		for i := range 2000 {
			var u uuid.UUID
			binary.BigEndian.PutUint64(u[:], uint64(tt.minted.UnixMilli())<<16|0x7000)
			binary.BigEndian.PutUint64(u[8:], 1<<63|uint64(i))
			shards[grown.Bucket(u.String())&0xffff] = true
		}
		if len(shards) != tt.want {
			t.Errorf("ids of %v use %d shards, want %d", tt.minted, len(shards), tt.want)
		}
	}
}

// A session has some time before it is replaced: a single failed request does
// not count.
func TestSessionIsGivenItsTime(t *testing.T) {
	for _, tt := range []struct {
		err  error
		long time.Duration
	}{
		{gocql.ErrNoConnections, patienceUnconnected},
		{context.DeadlineExceeded, patienceTimedOut * 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := testCluster()
			if sickAfter(c, tt.err, tt.long-time.Millisecond) {
				t.Errorf("%v for less than %v cost the session", tt.err, tt.long)
			}
			sickAfter(c, nil, time.Millisecond)
			if sickAfter(c, tt.err, tt.long-time.Millisecond) {
				t.Errorf("%v for less than %v after an answer cost the session", tt.err, tt.long)
			}
			if !sickAfter(c, tt.err, time.Second) {
				t.Errorf("%v for %v cost nothing", tt.err, tt.long+time.Second)
			}
		})
	}
}

// lines counts log lines.
type lines struct {
	slog.Handler
	n map[string]int
}

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	l.n[r.Message]++
	return nil
}

// A failing store logs its failure when it begins and every ten seconds, and
// once that it is back. A working one logs nothing.
func TestFailuresAreLoggedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := testCluster()
		said := map[string]int{}
		c.opts.Log = slog.New(lines{slog.DiscardHandler, said})
		sickAfter(c, nil, time.Minute)
		if len(said) != 0 {
			t.Errorf("a store that works: %v", said)
		}
		sickAfter(c, frame{gocql.ErrCodeOverloaded, "too much"}, 30*time.Second+100*time.Millisecond) // its last failure is at second 30
		if n := said["cassandra request failed, retrying"]; n != 4 || len(said) != 1 {
			t.Errorf("in 30 s of failures: %v", said)
		}
		sickAfter(c, nil, 9900*time.Millisecond)
		if len(said) != 1 {
			t.Errorf("in less than ten seconds of answers: %v", said)
		}
		sickAfter(c, nil, 100*time.Millisecond)
		if said["cassandra recovered"] != 1 {
			t.Errorf("after ten seconds of answers: %v", said)
		}
		sickAfter(c, nil, time.Minute)
		if n := said["cassandra recovered"]; n != 1 || said["cassandra request failed, retrying"] != 4 {
			t.Errorf("after a minute of answers: %v", said)
		}
		c.stop()
		sickAfter(c, context.Canceled, time.Minute)
		if said["cassandra request failed, retrying"] != 4 {
			t.Errorf("while closing: %v", said)
		}
	})
}
