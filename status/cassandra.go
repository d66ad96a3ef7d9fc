package status

import (
	"context"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/pushfleet/pushfleet/push"
)

// Cassandra is the status store. All methods may be called at once.
type Cassandra struct {
	opts    Options
	metrics *metrics
	cluster *cluster
	merger  *merger
	reads   *places // of confirm queries
}

// OpenCassandra connects, in one attempt that ends with ctx: to wait for a
// server, repeat it. A keyspace or table that is missing or different is a
// *SchemaError. Once open, the store reconnects by itself. Close ends it.
func OpenCassandra(ctx context.Context, opts Options) (*Cassandra, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, opts); err != nil {
		return nil, err
	}
	cl, err := connect(ctx, opts, opts.Keyspace)
	if err != nil {
		return nil, err
	}
	m := newMetrics()
	if err := m.register(opts.Registry); err != nil {
		cl.close()
		return nil, fmt.Errorf("registering status metrics: %w", err)
	}
	cl.heal(m.rebuilds.Inc)
	g := newMerger(opts.merging(), opts.Layouts.Bucket, &inserter{cluster: cl}, m, opts.place(), cl.trouble)
	return &Cassandra{
		opts: opts, metrics: m, cluster: cl, merger: g,
		reads: newPlaces(opts.Concurrency, opts.Timeout, cl.trouble, g.ctx),
	}, nil
}

// Close ends the store. Calls in progress get ErrClosed.
func (c *Cassandra) Close() {
	c.merger.close()
	c.cluster.close()
	c.metrics.unregister(c.opts.Registry)
}

// Bucket implements pipeline.Status.
func (c *Cassandra) Bucket(id string) int64 { return c.opts.Layouts.Bucket(id) }

// Write implements pipeline.Status. It returns nil when every row is durable,
// and tries until then or until ctx ends: the error then says where the rows
// were to go and how the last attempt failed, but nothing about the rows. Rows
// of one bucket go as one batch, also with those of other calls. Nothing of
// rows is kept after it returns.
func (c *Cassandra) Write(ctx context.Context, rows []push.Row) error {
	return c.merger.write(ctx, rows)
}

// WritePromptly is Write for rows that pushes wait for: they linger for 10 ms at the most.
func (c *Cassandra) WritePromptly(ctx context.Context, rows []push.Row) error {
	return c.merger.add(ctx, rows, true)
}

// Ping asks one node for an answer, once.
func (c *Cassandra) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	l := c.cluster.use()
	defer l.done()
	err := l.Query("SELECT key FROM system.local").Consistency(gocql.One).WithContext(ctx).Exec()
	c.cluster.observe(l, classify(err), err)
	if err != nil {
		return fmt.Errorf("querying %s: %w", c.opts.place(), err)
	}
	return nil
}
