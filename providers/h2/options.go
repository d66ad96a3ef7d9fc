package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"time"
)

// Options are the settings of a Pool. Optional ones that are zero get the
// default given in their comment.
type Options struct {
	// URL is the server: https, a host and optionally a port. Required.
	URL string
	// TLS is the client's configuration (roots, client certificate). It is
	// cloned; the protocol is set to h2. Optional.
	TLS *tls.Config
	// Lanes in front of the connections; at least one. Submit names them by
	// their index.
	Lanes []Lane
	// Connections that are kept, at most; opened when there is demand. 10.
	Connections int
	// StreamsPerConnection is the most requests in flight on one connection;
	// the server's own limit counts too. 1000.
	StreamsPerConnection int
	// AnswerHeaders are the answer headers to keep, lower case.
	AnswerHeaders []string
	// MaxAnswer is the longest answer body that is kept, in bytes. 16 KiB.
	MaxAnswer int
	// Timeout is the deadline of requests without one. 10 s.
	Timeout time.Duration
	// DialTimeout bounds TCP connect and TLS handshake together. 5 s.
	DialTimeout time.Duration
	// PingInterval without a frame leads to a PING. 15 s: Apple's connections
	// die silently, Google's refuse faster pings than about that.
	PingInterval time.Duration
	// PingTimeout without an answer closes the connection. 5 s: together with
	// PingInterval a black hole is noticed within 20 s.
	PingTimeout time.Duration
	// Backoff between failed dials of one connection: doubles from the first
	// to the second value, with full jitter. 100 ms and 30 s.
	Backoff, MaxBackoff time.Duration
	// CalmPause is how long nothing is opened after the server asked to slow
	// down (ENHANCE_YOUR_CALM, or Pool.Calm); it doubles up to MaxCalmPause when
	// it asks again. 1 s and 1 min.
	CalmPause, MaxCalmPause time.Duration
	// Resends is how often a request that was not accepted is sent again at
	// once, on another connection if there is one. 3; negative = never.
	Resends int
	// Reserve is how many of a connection's streams only the first lane may
	// use; at most half of what the server grants at the time. 0.
	Reserve int
	// Unauthenticated reports whether an answer with status 401 or 403 says
	// that the server does not know who asks. A connection has one stream until
	// its first answer that says otherwise, as Apple demands, and again from an
	// answer that does not know us to the next one that does. It is called with
	// locks held, and must not keep the answer. nil = the server has no such
	// rule: all streams that it grants are used from its first SETTINGS on.
	Unauthenticated func(*Answer) bool
	// Outdated reports whether a GOAWAY with this reason says that something is
	// wrong with the requests: those that it did not accept are handed back with
	// the GoAwayError, to be changed, and not sent again as they are. It is
	// called with locks held. No reason says so.
	Outdated func(reason string) bool
	// CurrentTLS, if set, is asked for each connection in place of TLS, and is treated as
	// it: certificates are renewed while the pool lives. What it returns is not changed
	// once returned; the same pointer means the same certificates.
	CurrentTLS func() *tls.Config
	// Identity, if set, numbers the credential that requests are written with now. A
	// connection keeps the number that it was opened under: once there is another, it
	// takes no new request, and closes when the others on it are done. So each
	// connection sees one credential, as Apple demands. It is called with locks held.
	Identity func() uint64
	// Authorize, set with Identity, writes a request anew for a connection of another
	// identity than Request.Identity, which it sets; one that it leaves at, or sets to,
	// another one is not sent over this connection. It is called with locks held, and
	// must leave the number of headers as it is.
	Authorize func(r *Request, identity uint64)
	// Lease, unless nil, is looked at right before requests are written: once
	// it has lapsed they are handed back NotAccepted, ErrLeaseLapsed.
	Lease Lease
	// Log, unless nil, receives why dials fail and connections end: three lines
	// at first, then at most one in ten seconds.
	Log *slog.Logger
	// Dial opens the TCP connection to one of the host's addresses. When it is
	// set and Lookup is not, it gets the host's name.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Lookup finds the host's addresses, again for every dial. The system's
	// resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

	firstStream uint32                                                  // for tests; 1
	secure      func(ctx context.Context, c net.Conn) (net.Conn, error) // for tests; TLS
}

// unknown reports whether an answer says that the server does not know who asks.
func (o *Options) unknown(a *Answer) bool {
	return o.Unauthenticated != nil && (a.Status == 401 || a.Status == 403) && o.Unauthenticated(a)
}

// identity is that of the credential in use now; 0 for all where there is one only.
func (o *Options) identity() uint64 {
	if o.Identity == nil {
		return 0
	}
	return o.Identity()
}

func (o *Options) setDefaults() {
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	orInt(&o.Connections, 10)
	orInt(&o.StreamsPerConnection, 1000)
	orInt(&o.MaxAnswer, 16<<10)
	orInt(&o.Resends, 3)
	orTime(&o.Timeout, 10*time.Second)
	orTime(&o.DialTimeout, 5*time.Second)
	orTime(&o.PingInterval, 15*time.Second)
	orTime(&o.PingTimeout, 5*time.Second)
	orTime(&o.CalmPause, time.Second)
	orTime(&o.MaxCalmPause, time.Minute)
	orTime(&o.Backoff, 100*time.Millisecond)
	orTime(&o.MaxBackoff, 30*time.Second)
	if o.Lookup == nil && o.Dial == nil {
		o.Lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	if o.Outdated == nil {
		o.Outdated = func(string) bool { return false }
	}
	if o.firstStream == 0 {
		o.firstStream = 1
	}
}

func (o *Options) check() (*url.URL, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("url does not parse") // the error would repeat the URL
	}
	if (o.Identity == nil) != (o.Authorize == nil) {
		return nil, errors.New("identity and authorize belong together")
	}
	if u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil {
		return nil, errors.New("url must be https:// and a host, without path, query or user")
	}
	if len(o.Lanes) == 0 {
		return nil, errors.New("no lanes")
	}
	for _, l := range o.Lanes {
		if l.Weight < 1 || l.Queue < 1 {
			return nil, fmt.Errorf("lane %q: weight and queue must be at least 1", l.Name)
		}
	}
	if o.Connections < 1 || o.StreamsPerConnection < 1 || o.MaxAnswer < 1 {
		return nil, errors.New("connections, streams and the longest answer must be at least 1")
	}
	if o.StreamsPerConnection > 1<<16 || o.MaxAnswer > 1<<30 || o.Reserve < 0 {
		return nil, errors.New("more than 65536 streams on a connection, an answer over 1 GiB, or a negative reserve")
	}
	if o.MaxBackoff < o.Backoff || o.MaxCalmPause < o.CalmPause || min(o.Backoff, o.CalmPause, o.Timeout, o.DialTimeout, o.PingInterval, o.PingTimeout) < 0 {
		return nil, errors.New("a duration is negative, or the longest back-off or pause is below the first")
	}
	return u, nil
}
