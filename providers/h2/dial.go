package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// dialer opens connections, few at a time and spread over time, to all
// addresses of the server's name in turn.
type dialer struct {
	opt        *Options
	calm       *calm
	name, port string
	limit      chan struct{} // a token per dial in progress

	mu   sync.Mutex
	from *tls.Config  // what conf was made of
	conf *tls.Config  // for the next handshake
	next time.Time    // when the next dial may begin
	rest int          // dials that may follow each other closely
	seen time.Time    // when rest was last filled up
	last []netip.Addr // addresses used lately, the latest last
}

const (
	// dialsAtOnce is the most dials in progress. Apple takes rapid connecting for
	// an attack.
	dialsAtOnce = 4
	// dialGap is the mean time between dials of a burst, and slowGap the one
	// when a pool has spent its burst of twice its connections, or was told to
	// slow down.
	dialGap = 5 * time.Millisecond
	slowGap = 250 * time.Millisecond
	// calmTime is how long it takes a pool to earn back one dial of its burst.
	calmTime = time.Second
)

func newDialer(opt *Options, calm *calm, name, port string) *dialer {
	return &dialer{
		opt: opt, calm: calm, name: name, port: port, limit: make(chan struct{}, dialsAtOnce),
		rest: 2 * opt.Connections,
	}
}

// config is what the next handshake goes by. Sessions are resumed under the
// certificates only that they began with.
func (d *dialer) config() *tls.Config {
	from := d.opt.TLS
	if d.opt.CurrentTLS != nil {
		from = d.opt.CurrentTLS()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conf != nil && from == d.from {
		return d.conf
	}
	conf := &tls.Config{}
	if from != nil {
		conf = from.Clone()
	}
	if conf.ServerName == "" {
		conf.ServerName = d.name
	}
	conf.NextProtos = []string{"h2"}
	conf.MinVersion = max(conf.MinVersion, tls.VersionTLS12)
	// Records have a fixed size: one write each, so we know what is in it.
	conf.DynamicRecordSizingDisabled = true
	if conf.ClientSessionCache == nil {
		conf.ClientSessionCache = tls.NewLRUClientSessionCache(d.opt.Connections)
	}
	d.from, d.conf = from, conf
	return conf
}

// dial returns a connection after its handshake, and the connection below its
// TLS. begun is called when the waiting is over.
func (d *dialer) dial(ctx context.Context, begun func()) (net.Conn, *wire, error) {
	select {
	case d.limit <- struct{}{}:
		defer func() { <-d.limit }()
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if err := d.space(ctx); err != nil {
		return nil, nil, err
	}
	begun()
	ctx, cancel := context.WithTimeout(ctx, d.opt.DialTimeout)
	defer cancel()
	raw, err := d.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	w := &wire{Conn: raw}
	if d.opt.secure != nil {
		nc, err := d.opt.secure(ctx, w)
		return nc, w, err
	}
	nc := tls.Client(w, d.config())
	if err := nc.HandshakeContext(ctx); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), raw.Close())
	}
	if got := nc.ConnectionState().NegotiatedProtocol; got != "h2" {
		return nil, nil, errors.Join(fmt.Errorf("the server does not speak HTTP/2: it chose %q (ALPN)", got), raw.Close())
	}
	return nc, w, nil
}

// space waits until this dial may begin.
func (d *dialer) space(ctx context.Context) error {
	d.mu.Lock()
	now := time.Now()
	if most := 2 * d.opt.Connections; d.seen.IsZero() || d.rest >= most {
		d.rest, d.seen = most, now
	} else if earned := int(now.Sub(d.seen) / calmTime); earned > 0 {
		d.rest, d.seen = min(d.rest+earned, most), d.seen.Add(time.Duration(earned)*calmTime)
	}
	gap := slowGap
	if d.rest > 0 {
		d.rest--
		if d.calm.shift.Load() == 0 {
			gap = dialGap
		}
	}
	if d.next.Before(now) {
		d.next = now
	}
	wait := d.next.Sub(now)
	d.next = d.next.Add(time.Duration(rand.Int64N(int64(2 * gap))))
	d.mu.Unlock()
	if wait == 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// connect looks the name up, each time, and tries its addresses, the least
// recently used first.
func (d *dialer) connect(ctx context.Context) (net.Conn, error) {
	if _, err := netip.ParseAddr(d.name); err == nil || d.opt.Lookup == nil {
		c, err := d.opt.Dial(ctx, "tcp", net.JoinHostPort(d.name, d.port))
		if err != nil {
			return nil, fmt.Errorf("connecting: %w", err)
		}
		return c, nil
	}
	found, err := d.opt.Lookup(ctx, d.name)
	if err != nil {
		return nil, fmt.Errorf("looking up the server: %w", err)
	}
	var errs []error
	for _, a := range d.order(found) {
		// A dead address must not use up the time of the others.
		part, cancel := context.WithTimeout(ctx, max(d.opt.DialTimeout/4, time.Millisecond))
		c, err := d.opt.Dial(part, "tcp", net.JoinHostPort(a.Unmap().String(), d.port))
		cancel()
		if err == nil {
			return c, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("connecting: %w", errors.Join(errs...))
}

// order sorts addresses by how long ago they were used, at random among those
// that were not, and notes the first as used now.
func (d *dialer) order(found []netip.Addr) []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	age := func(a netip.Addr) int {
		for i := len(d.last) - 1; i >= 0; i-- {
			if d.last[i] == a {
				return i + 1
			}
		}
		return 0
	}
	as := append([]netip.Addr(nil), found...)
	rand.Shuffle(len(as), func(i, j int) { as[i], as[j] = as[j], as[i] })
	slices.SortStableFunc(as, func(a, b netip.Addr) int { return age(a) - age(b) })
	if len(as) > 0 {
		if i := age(as[0]); i > 0 {
			d.last = append(d.last[:i-1], d.last[i:]...)
		}
		d.last = append(d.last, as[0])
		if len(d.last) > 64 {
			d.last = d.last[1:]
		}
	}
	return as
}

// backoff is the wait before dial number n+1 after n failures: full jitter
// over a ceiling that doubles.
func backoff(first, most time.Duration, failures int, random func(int64) int64) time.Duration {
	ceiling := first
	for i := 1; i < failures && ceiling < most; i++ {
		ceiling *= 2
	}
	ceiling = min(ceiling, most)
	if ceiling <= 0 {
		return 0
	}
	return time.Duration(random(int64(ceiling))) + 1
}
