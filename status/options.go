package status

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/push"
)

// Options say which Cassandra to use and how. Zero values get the defaults
// named at each field.
type Options struct {
	Hosts    []string // host or host:port (9042); one that answers is enough to find the others
	Keyspace string   // "pushfleet"
	// LocalDC is the data centre whose nodes are used, and none but those:
	// LOCAL_QUORUM through a coordinator elsewhere would be that one's quorum.
	// Empty = all nodes, for clusters of one data centre.
	LocalDC  string
	Username string // empty = no authentication
	Password string
	TLS      *tls.Config // nil = none. ServerName is each host's own unless set
	// CurrentTLS, if set, is asked for each connection in place of TLS: certificates are
	// renewed while the store is open.
	CurrentTLS func() *tls.Config

	Consistency string        // of writes and confirm reads: "LOCAL_QUORUM"
	Timeout     time.Duration // of one attempt: 5 s
	Connections int           // per host: 2

	FlushRows   int           // a batch is full at this many rows of a bucket, 1 to 10,000: 200
	FlushBytes  int           // or at this many bytes of values: 48 KiB (200 rows are about 35)
	FlushLinger time.Duration // from a batch's first row to its sending: 50 ms. Of WritePromptly 10 ms at the most
	Lingering   int           // rows that linger at most; beyond it, batches go sooner: 2,000
	Concurrency int           // full batches, and confirm queries, in flight at once: 32; up to eight times as many small ones

	// PackedRows writes what a row says besides its key in one column, details,
	// in place of one for each: less work for the server. Rows are read in
	// either format, but by releases that know the column.
	PackedRows bool

	// TTL is how long rows must live at least; the table's own default is what
	// counts, and a table with less is refused. 0 = not compared.
	TTL     time.Duration
	Layouts Layouts // DefaultLayouts

	Registry prometheus.Registerer // nil = no metrics
	Log      *slog.Logger          // nil = slog.Default
}

// keyspaceName is what a keyspace may be called without quotes.
var keyspaceName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// withDefaults fills in zero values and refuses invalid ones.
func (o Options) withDefaults() (Options, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Connections, 2)
	def(&o.FlushRows, 200)
	def(&o.FlushBytes, 48<<10)
	def(&o.Lingering, 2000)
	def(&o.Concurrency, 32)
	if o.Keyspace == "" {
		o.Keyspace = "pushfleet"
	}
	if o.Consistency == "" {
		o.Consistency = "LOCAL_QUORUM"
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.FlushLinger == 0 {
		o.FlushLinger = 50 * time.Millisecond
	}
	if o.Layouts == nil {
		o.Layouts = DefaultLayouts()
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, o.validate()
}

func (o *Options) validate() error {
	var c gocql.Consistency
	switch {
	case len(o.Hosts) == 0:
		return errors.New("cassandra: no hosts")
	case !keyspaceName.MatchString(o.Keyspace):
		return fmt.Errorf("cassandra: keyspace %q, want lower-case letters, digits and _, at most 48", o.Keyspace)
	case c.UnmarshalText([]byte(strings.ToUpper(o.Consistency))) != nil:
		return fmt.Errorf("cassandra: unknown consistency %q", o.Consistency)
	case o.Timeout < 0, o.FlushLinger < 0, o.TTL < 0:
		return errors.New("cassandra: a duration is negative")
	case o.FlushRows < 1 || o.FlushRows > 10_000:
		return fmt.Errorf("cassandra: %d rows a batch, want 1 to 10,000", o.FlushRows)
	case o.FlushBytes < 1 || o.FlushBytes > 8<<20:
		return fmt.Errorf("cassandra: %d bytes a batch, want 1 to 8 MiB (Cassandra's limit for a mutation is 16 MiB)", o.FlushBytes)
	case o.Lingering < 1:
		return fmt.Errorf("cassandra: %d rows that linger, want at least 1", o.Lingering)
	case o.Concurrency < 1 || o.Concurrency > 1024 || o.Connections < 1:
		return fmt.Errorf("cassandra: concurrency %d and connections %d, want 1 to 1,024", o.Concurrency, o.Connections)
	}
	if _, err := o.port(); err != nil {
		return err
	}
	return o.Layouts.Validate()
}

// merging are the limits of its batches.
func (o *Options) merging() mergeOptions {
	return mergeOptions{
		rows: o.FlushRows, bytes: o.FlushBytes, linger: o.FlushLinger, lingering: o.Lingering,
		concurrency: o.Concurrency, timeout: o.Timeout, packed: o.PackedRows,
		backoff: push.Backoff{First: 50 * time.Millisecond, Longest: 2 * time.Second},
	}
}

// place names the store in errors and logs: never a user or password.
func (o *Options) place() string {
	return "cassandra " + strings.Join(o.Hosts, ",") + " keyspace " + o.Keyspace
}

// port is what nodes that are found through the first ones are dialled on.
func (o *Options) port() (int, error) {
	_, port, err := net.SplitHostPort(o.Hosts[0])
	if err != nil {
		return 9042, nil // a bare host
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return 0, fmt.Errorf("cassandra: host %q has no usable port", o.Hosts[0])
	}
	return n, nil
}

// cluster is the configuration of a new gocql session in a keyspace, and its
// policy, which may serve one session only.
func (o *Options) cluster(keyspace string, d gocql.Dialer) (*gocql.ClusterConfig, *hosts) {
	c := gocql.NewCluster(o.Hosts...)
	c.Keyspace = keyspace
	c.Port, _ = o.port()
	c.ProtoVersion = 4
	c.Dialer = d
	c.NumConns = o.Connections
	c.Timeout, c.WriteTimeout, c.ConnectTimeout = o.Timeout, o.Timeout, o.Timeout
	c.Consistency = gocql.ParseConsistency(strings.ToUpper(o.Consistency))
	c.DefaultIdempotence = true
	c.RetryPolicy = nil // we count, space and end attempts ourselves
	c.DefaultTimestamp = false
	c.ReconnectInterval = 5 * time.Second // the default leaves a node that was down unused for a minute
	c.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1, Interval: 100 * time.Millisecond}
	c.Logger = driverLog{o.Log}
	if o.Username != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	switch {
	case o.CurrentTLS != nil:
		c.HostDialer = renewingDialer{d, o.CurrentTLS}
	case o.TLS != nil:
		c.SslOpts = &gocql.SslOptions{Config: o.TLS, EnableHostVerification: true}
	}
	if o.LocalDC != "" {
		c.HostFilter = gocql.DataCentreHostFilter(o.LocalDC) // the policy never hears of the others
	}
	policy := watchHosts(gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy(), gocql.ShuffleReplicas()))
	c.PoolConfig.HostSelectionPolicy = policy
	return c, policy
}

// renewingDialer dials as gocql does, with the certificates of the moment.
type renewingDialer struct {
	dialer gocql.Dialer
	tls    func() *tls.Config
}

// DialHost implements gocql.HostDialer.
func (d renewingDialer) DialHost(ctx context.Context, host *gocql.HostInfo) (*gocql.DialedHost, error) {
	conn, err := d.dialer.DialContext(ctx, "tcp", host.ConnectAddressAndPort())
	if err != nil {
		return nil, err
	}
	return gocql.WrapTLS(ctx, conn, host.HostnameAndPort(), d.tls())
}

// tls is what connections are secured by now; nil = not at all.
func (o *Options) tls() *tls.Config {
	if o.CurrentTLS != nil {
		return o.CurrentTLS()
	}
	return o.TLS
}

// driverLog passes on gocql's messages about its connections. It names hosts
// and states, never values.
type driverLog struct{ log *slog.Logger }

func (l driverLog) Print(v ...any) { l.log.Debug("gocql", "says", fmt.Sprint(v...)) }
func (l driverLog) Printf(format string, v ...any) {
	l.log.Debug("gocql", "says", fmt.Sprintf(format, v...))
}
func (l driverLog) Println(v ...any) { l.log.Debug("gocql", "says", fmt.Sprintln(v...)) }
