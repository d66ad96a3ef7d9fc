// Package check asks a provider whether it would take an app's pushes, and says at
// which step it would not: resolving the name, connecting, TLS, HTTP/2, the
// credentials, the topic or project. Nobody is pushed.
//
// It makes connections of its own and shares no code with the clients that workers
// send through, so that a fault of theirs does not hide itself.
package check

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Step is one of the steps to a push. The zero Advice is that of a step which is well.
type Step struct {
	Name   string `json:"step"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`           // what was seen
	Advice string `json:"advice,omitempty"` // what to do about it
}

// Steps are those that were tried, in their order; all but the last are well.
type Steps []Step

// OK reports whether the provider would take a push.
func (s Steps) OK() bool { return len(s) > 0 && s[len(s)-1].OK }

func (s *Steps) well(name, detail string) {
	*s = append(*s, Step{Name: name, OK: true, Detail: detail})
}

func (s *Steps) fails(name, detail, advice string) {
	*s = append(*s, Step{Name: name, Detail: detail, Advice: advice})
}

// caller is one HTTP/2 connection.
type caller struct {
	transport *http.Transport
	conn      net.Conn
}

var errOneConnection = errors.New("the connection has ended")

// newCaller speaks HTTP/2 over conn, on which it was chosen, and makes no other connection.
func newCaller(conn *tls.Conn) *caller {
	one := make(chan *tls.Conn, 1)
	one <- conn
	return &caller{conn: conn, transport: &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
		select {
		case c := <-one:
			return c, nil
		default:
			return nil, errOneConnection
		}
	}}}
}

func (c *caller) close() {
	c.transport.CloseIdleConnections()
	_ = c.conn.Close() // nothing is under way
}

// reach goes the first steps to the server at raw, whose scheme is https. conf has the roots.
func (s *Steps) reach(ctx context.Context, raw string, conf *tls.Config) *caller {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		s.fails("address", fmt.Sprintf("%q is no https URL", raw), "correct the URL in the configuration")
		return nil
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "443"
	}
	if !s.resolve(ctx, host) {
		return nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		s.fails("connection", short(err), "let this machine out to "+host+":"+port+" (firewall, proxy, route)")
		return nil
	}
	s.well("connection", conn.RemoteAddr().String())
	return s.secure(ctx, conn, host, conf)
}

func (s *Steps) resolve(ctx context.Context, host string) bool {
	const name = "name resolution"
	if _, err := netip.ParseAddr(host); err == nil {
		s.well(name, host+" is an address")
		return true
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		s.fails(name, short(err), "check the name in the configuration, and the DNS server of this machine")
		return false
	}
	s.well(name, host+" is "+addresses[0])
	return true
}

// protocol is the name of HTTP/2 over TLS (RFC 9113, section 3.1).
const protocol = "h2"

// secure makes conn one of HTTP/2, or closes it.
func (s *Steps) secure(ctx context.Context, conn net.Conn, host string, conf *tls.Config) *caller {
	conf = conf.Clone()
	if conf == nil {
		conf = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	conf.ServerName, conf.NextProtos = host, []string{protocol}
	over := tls.Client(conn, conf)
	if err := over.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error is the one to tell
		s.fails("TLS", short(err), tlsAdvice(err))
		return nil
	}
	state := over.ConnectionState()
	s.well("TLS", tls.VersionName(state.Version)+", certificate of "+state.PeerCertificates[0].Subject.CommonName)
	if state.NegotiatedProtocol != protocol {
		_ = over.Close() // unused
		s.fails("HTTP/2", "the server did not choose it", "a proxy between this machine and the provider breaks HTTP/2; go around it")
		return nil
	}
	return newCaller(over)
}

// tlsAdvice says what to do about a handshake that failed.
func tlsAdvice(err error) string {
	var (
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		hostname  x509.HostnameError
	)
	switch {
	case errors.As(err, &authority):
		return "nobody who is trusted here has signed the certificate: install ca-certificates; a proxy that opens TLS needs its CA in ca_file"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate is not valid now: look at this machine's clock"
	case errors.As(err, &hostname):
		return "the certificate is another server's: look at the URL and at the DNS answer"
	case strings.Contains(err.Error(), "no application protocol"): // crypto/tls has no type for alerts
		return "the server does not speak HTTP/2: is it the provider's, or a proxy's?"
	}
	return "something between this machine and the provider disturbs TLS, or the server is not the provider's"
}

// post sends one request; the answer's body is bounded by its reader.
func (c *caller) post(ctx context.Context, url, body string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	return c.transport.RoundTrip(r)
}

// short is an error's text in one line of bounded length.
func short(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return line(err.Error())
}

const longest = 200

func line(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "") + "…"
	}
	return s
}
