package status

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/pushfleet/pushfleet/push"
)

// cluster owns the gocql session and replaces it when it does not heal.
//
// gocql can end in a state where every query says "no hosts available in the
// pool" although the servers are back, until the process restarts; and it can
// leave a recovered node unused. So a session that has been failing for a
// while without one success is replaced, and so is one that leaves a node
// unused that answers (hosts.go). Requests in progress on the old one end
// there; then it is closed.
type cluster struct {
	opts     Options
	keyspace string
	replaced func() // a session has been replaced

	watch hostWatch
	ctx   context.Context // ends at close; dials end with it
	stop  context.CancelFunc
	sick  chan struct{}
	owned sync.WaitGroup

	mu      sync.Mutex
	link    *link
	failing time.Time // since when no request has been answered; zero while they are
	last    error     // of the latest request; nil when it was answered
	warned  time.Time // when a failure was last logged; zero when all is well
}

// link is a session and those who use it.
type link struct {
	*gocql.Session
	hosts *hosts
	users sync.WaitGroup // grows under the cluster's mutex only, and while the link is the current one
}

// How long a session may fail to answer before it is replaced. A pool without
// connections fails at once, and cheaply, so that case needs little.
const (
	patienceUnconnected = 500 * time.Millisecond
	patienceTimedOut    = 2 // times the time-out of a request
)

// Pause between two attempts to connect.
const (
	firstReconnect = 100 * time.Millisecond
	longReconnect  = 2 * time.Second
)

// connect opens the first session, in one attempt that ends with ctx. Its
// keyspace is empty when the keyspace is to be created or checked.
func connect(ctx context.Context, opts Options, keyspace string) (*cluster, error) {
	own, stop := context.WithCancel(context.Background())
	c := &cluster{opts: opts, keyspace: keyspace, watch: defaultHostWatch(), ctx: own, stop: stop, sick: make(chan struct{}, 1), replaced: func() {}}
	l, err := c.open(ctx)
	if err != nil {
		stop()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("connecting to %s: %w after: %w", opts.place(), context.Cause(ctx), err)
		}
		return nil, fmt.Errorf("connecting to %s: %w", opts.place(), err)
	}
	c.link = l
	return c, nil
}

// open makes a session. gocql knows no context here; ending the connections it
// dials ends it as well.
func (c *cluster) open(ctx context.Context) (*link, error) {
	d := &dialer{life: c.ctx, opening: ctx, timeout: c.opts.Timeout}
	config, hosts := c.opts.cluster(c.keyspace, d)
	s, err := config.CreateSession()
	d.unwatch()
	if err != nil {
		return nil, err
	}
	return &link{Session: s, hosts: hosts}, nil
}

// use returns the current session. Callers give it back with done, and soon:
// every request has a time-out.
func (c *cluster) use() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link.users.Add(1)
	return c.link
}

func (l *link) done() { l.users.Done() }

// trouble is the error of the latest request; nil when it was answered.
func (c *cluster) trouble() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// warnInterval keeps a store that alternately fails and succeeds from filling
// the log.
const warnInterval = 10 * time.Second

// observe takes note of how a request on s ended. A failing store is logged
// when it begins to fail and while it lasts, and once when it is back.
func (c *cluster) observe(l *link, f failure, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch now := time.Now(); {
	case f != noFailure && c.ctx.Err() == nil && now.Sub(c.warned) >= warnInterval:
		c.warned = now
		c.opts.Log.Warn("cassandra request failed, retrying", "hosts", c.opts.Hosts, "keyspace", c.opts.Keyspace, "result", f.String(), "error", err)
	case f == noFailure && !c.warned.IsZero() && now.Sub(c.warned) >= warnInterval:
		c.warned = time.Time{}
		c.opts.Log.Info("cassandra recovered", "hosts", c.opts.Hosts, "keyspace", c.opts.Keyspace)
	}
	if l != c.link {
		return
	}
	c.last = err
	if !unanswered(err) {
		c.failing = time.Time{}
		return
	}
	now := time.Now()
	if c.failing.IsZero() {
		c.failing = now
	}
	patience := patienceUnconnected
	if f == timedOut {
		patience = patienceTimedOut * c.opts.Timeout
	}
	if now.Sub(c.failing) >= patience {
		c.rebuild()
	}
}

// rebuild asks for a new session.
func (c *cluster) rebuild() {
	select {
	case c.sick <- struct{}{}:
	default: // asked for already
	}
}

// heal starts replacing sessions that do not heal by themselves, until close.
func (c *cluster) heal(replaced func()) {
	c.replaced = replaced
	c.owned.Go(c.runRebuild)
	c.owned.Go(c.runHostWatch)
}

// runRebuild replaces the session whenever it is sick. The old one stays until
// there is a new one, because it may heal by itself.
func (c *cluster) runRebuild() {
	for {
		select {
		case <-c.sick:
		case <-c.ctx.Done():
			return
		}
		backoff := push.Backoff{First: firstReconnect, Longest: longReconnect}
		for attempt := 1; ; attempt++ {
			l, err := c.open(c.ctx)
			if err == nil {
				c.replace(l)
				break
			}
			c.opts.Log.Warn("cannot reconnect to cassandra, retrying", "hosts", c.opts.Hosts, "keyspace", c.opts.Keyspace, "error", err)
			select {
			case <-c.ctx.Done():
				return
			case <-time.After(backoff.After(attempt)):
			}
			if c.healed() {
				break
			}
		}
	}
}

// healed reports whether the current session has got an answer since a rebuild
// was asked for.
func (c *cluster) healed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing.IsZero()
}

func (c *cluster) replace(l *link) {
	old := c.swap(l)
	c.replaced()
	c.opts.Log.Info("cassandra session replaced", "hosts", c.opts.Hosts, "keyspace", c.opts.Keyspace)
	// Requests on it may still be answered: a server that hung answers what it
	// was asked before. The new session need not wait for that.
	c.owned.Go(func() {
		old.users.Wait()
		old.Close()
	})
}

// swap makes l the current session. Failures of the old one while l was being
// opened say nothing about l.
func (c *cluster) swap(l *link) (old *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, c.link, c.failing = c.link, l, time.Time{}
	select {
	case <-c.sick:
	default:
	}
	return old
}

// close ends the session and every connection, and waits.
func (c *cluster) close() {
	c.stop()
	c.owned.Wait()
	c.link.Close()
}

// dialer opens the connections of one session. No dial outlives the store.
// While the session is still being made, its connections also close when
// opening ends: gocql itself would go on waiting for a server that does not
// answer.
//
// It hands out plain TCP connections, because gocql writes many frames in one
// system call only to those.
type dialer struct {
	life    context.Context
	opening context.Context
	timeout time.Duration

	mu     sync.Mutex
	opened bool
	stops  []func() bool // of the watches on opening
}

// DialContext implements gocql.Dialer.
func (d *dialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	if !d.isOpened() {
		defer context.AfterFunc(d.opening, cancel)()
	}
	nd := net.Dialer{Timeout: d.timeout, KeepAlive: 15 * time.Second}
	conn, err := nd.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.opened {
		d.stops = append(d.stops, context.AfterFunc(d.opening, func() { conn.Close() }))
	}
	return conn, nil
}

func (d *dialer) isOpened() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened
}

// unwatch ends the watches on the opening context: the session is made, or not.
func (d *dialer) unwatch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
	d.stops, d.opened = nil, true
}
