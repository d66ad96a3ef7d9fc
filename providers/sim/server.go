package sim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/providers/sim/engine"
)

// Server is a running simulator. Its methods are safe for concurrent use.
type Server struct {
	options Options
	policy  *policy
	ca      *authority
	engine  *engine.Engine
	dials   *dials
	admin   *http.Server

	mu       sync.Mutex
	addr     net.Addr // of the first listener
	adminURL string
	closed   bool

	scheduled   []Scheduled // in order of time
	timing      bool        // keepTime is running
	rescheduled chan struct{}

	life    context.Context // until Close
	end     context.CancelFunc
	serving sync.WaitGroup
}

// New makes a simulator, with a certificate authority of its own. It listens
// to nothing before Start or Serve, but a schedule begins now: a Server has to
// be closed.
func New(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("making the simulator: %w", err)
	}
	ca, err := newAuthority(o.Hosts)
	if err != nil {
		return nil, fmt.Errorf("making the simulator: %w", err)
	}
	s := &Server{options: o, ca: ca, policy: newPolicy(&o)}
	s.dials = newDials(s.policy.fate)
	s.engine = engine.New(engine.Options{Certificate: ca.server, Now: s.policy.clock.Now, HTTP2Only: http2Only})
	s.rescheduled = make(chan struct{}, 1)
	s.life, s.end = context.WithCancel(context.Background())
	if err := s.Schedule(o.Schedule...); err != nil {
		return nil, fmt.Errorf("making the simulator: %w", err)
	}
	s.admin = &http.Server{Handler: s.Admin(), ReadHeaderTimeout: 10 * time.Second}
	return s, nil
}

// Start listens on a TCP address ("127.0.0.1:0" for any free port) and serves
// APNs, FCM and the token endpoint there in the background until Close.
func (s *Server) Start(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("starting the simulator: %w", err)
	}
	return s.background(l, s.note(l), func() error { return s.Serve(l) })
}

// Serve serves one listener, with TLS on top of it, until Close. Then it
// returns nil. It may be called for several listeners.
func (s *Server) Serve(l net.Listener) error { return s.ServeFor(Nobody, l) }

// ServeFor is Serve for the clients of one provider only, which are known as such
// from their first byte: with Rules.Streams, a connection to FCM is granted no more
// from the beginning. Nobody stands for those of all.
func (s *Server) ServeFor(p Provider, l net.Listener) error {
	s.note(l)
	open := func(c engine.Client) engine.Session { return s.open(p, c) }
	if err := s.engine.Serve(l, open); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// note remembers the first address, and makes it an audience of OAuth
// assertions.
func (s *Server) note(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil {
		s.addr = l.Addr()
	}
	s.policy.oauth.address("https://" + l.Addr().String() + tokenPath)
	if _, port, err := net.SplitHostPort(l.Addr().String()); err == nil {
		for _, h := range append([]string{"localhost", "127.0.0.1"}, s.options.Hosts...) {
			s.policy.oauth.address("https://" + net.JoinHostPort(h, port) + tokenPath)
		}
	}
	return !s.closed
}

// background runs serve until Close; a failure of a listener ends that
// listener only, and its clients see it.
func (s *Server) background(l net.Listener, open bool, serve func() error) error {
	if !open {
		return errors.Join(errors.New("starting the simulator: it is closed"), l.Close())
	}
	s.serving.Go(func() { _ = serve() })
	return nil
}

// StartAdmin serves the admin API over plain HTTP on an address of its own,
// until Close. It is for loopback: it asks for no credentials.
func (s *Server) StartAdmin(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("starting the simulator's admin API: %w", err)
	}
	s.mu.Lock()
	s.adminURL = "http://" + l.Addr().String()
	open := !s.closed
	s.mu.Unlock()
	return s.background(l, open, func() error { return s.admin.Serve(l) })
}

// URL is the base of all providers' paths: "https://127.0.0.1:40123". It is
// empty before Start or Serve.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.addr == nil {
		return ""
	}
	return s.base(s.addr)
}

// base is the beginning of all URLs at an address.
func (s *Server) base(addr net.Addr) string {
	address := addr.String()
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host := "127.0.0.1" // what listens everywhere is reached by name
		if len(s.options.Hosts) > 0 {
			host = s.options.Hosts[0]
		}
		address = net.JoinHostPort(host, strconv.Itoa(tcp.Port))
	}
	return "https://" + address
}

// TokenURI is the address of the OAuth token endpoint.
func (s *Server) TokenURI() string { return s.URL() + tokenPath }

// AdminURL is the base of the admin API, empty before StartAdmin.
func (s *Server) AdminURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.adminURL
}

// CAPEM is the certificate that clients have to trust.
func (s *Server) CAPEM() []byte { return append([]byte(nil), s.ca.pem...) }

// CAPool is a pool of that certificate only.
func (s *Server) CAPool() *x509.CertPool { return s.ca.pool.Clone() }

// ClientTLS is a client's TLS configuration that trusts this server.
func (s *Server) ClientTLS() *tls.Config {
	return &tls.Config{RootCAs: s.CAPool(), MinVersion: tls.VersionTLS12}
}

// Ledger is what arrived.
func (s *Server) Ledger() *Ledger { return s.policy.ledger }

// Devices is the registry of special device tokens.
func (s *Server) Devices() *Devices { return s.policy.devices }

// SetFaults replaces what goes wrong at one provider, from the next request on.
func (s *Server) SetFaults(p Provider, f Faults) error {
	if p != APNS && p != FCM && p != OAuth {
		return fmt.Errorf("setting faults: no provider %q", p)
	}
	if err := f.validateFor(p); err != nil {
		return fmt.Errorf("setting faults of %s: %w", p, err)
	}
	s.policy.setFaults(p, f)
	return nil
}

// Faults returns what goes wrong at one provider at present.
func (s *Server) Faults(p Provider) Faults {
	if p > OAuth {
		return Faults{}
	}
	return *s.policy.chance.routes[p].Load()
}

// Trust has Apple and Google take the keys of an app that they know besides those
// they take already: both overlap.
func (s *Server) Trust(app App) {
	s.policy.apple.auth.trust(&app)
	s.policy.oauth.trust(&app)
}

// Revoke ends the keys of an app, of which it may have others: Apple refuses what is
// signed by them at once, Google gives no more access tokens for them.
func (s *Server) Revoke(app App) {
	s.policy.apple.auth.revoke(app.KeyID)
	s.policy.oauth.distrust(&app)
}

// KeyPushes is how many pushes one of Apple's keys has authenticated, since it is
// known; 0 for a key that is not.
func (s *Server) KeyPushes(keyID string) int64 { return s.policy.apple.auth.pushes(keyID) }

// RevokeAccessTokens makes FCM refuse all OAuth tokens handed out so far.
func (s *Server) RevokeAccessTokens() { s.policy.oauth.revoke() }

// Shutdown stops listening, lets the requests in flight be answered until ctx
// ends, and then closes as Close does.
func (s *Server) Shutdown(ctx context.Context) error {
	err := errors.Join(s.engine.Shutdown(ctx), s.admin.Shutdown(ctx))
	if e := s.Close(); err == nil {
		err = e
	}
	return err
}

// Close stops listening and drops all connections. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	err := errors.Join(s.engine.Close(), s.admin.Close())
	s.serving.Wait()
	if err != nil {
		return fmt.Errorf("closing the simulator: %w", err)
	}
	return nil
}
