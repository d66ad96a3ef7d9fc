package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// journal keeps log lines.
type journal struct {
	once  sync.Once
	begun chan struct{} // closed when there is a line

	mu sync.Mutex
	b  bytes.Buffer
}

func newJournal() *journal { return &journal{begun: make(chan struct{})} }

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.once.Do(func() { close(j.begun) })
	return j.b.Write(b)
}

func (j *journal) log() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Split(strings.TrimSuffix(j.b.String(), "\n"), "\n")
}

// wantTold fails unless the pool's trouble and a log line contain all words.
func (j *journal) wantTold(t *testing.T, p *Pool, lasts bool, words ...string) {
	t.Helper()
	got := p.Stats().Trouble
	all := strings.Join(j.lines(), "\n")
	for _, w := range words {
		if !strings.Contains(got.Cause, w) || !strings.Contains(all, strings.ReplaceAll(w, `"`, `\"`)) {
			t.Errorf("%q in neither or one of trouble %q and log\n%s", w, got.Cause, all)
		}
	}
	if got.Lasts != lasts || got.At.IsZero() {
		t.Errorf("lasts %v, at %v", got.Lasts, got.At)
	}
}

// The cause of a missing connection is reported, for each way in which a dial
// fails.
func TestCauseOfAFailedDialIsTold(t *testing.T) {
	dial := func(err error) func(context.Context, string, string) (net.Conn, error) {
		return func(context.Context, string, string) (net.Conn, error) { return nil, err }
	}
	addresses := func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}, nil
	}
	for name, tc := range map[string]struct {
		opt  Options
		want []string
	}{
		"DNS": {Options{Lookup: func(context.Context, string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "push.example", IsNotFound: true}
		}}, []string{"looking up the server", "push.example", "no such host"}},
		"refused": {Options{Lookup: addresses, Dial: dial(errors.New("dial tcp 10.0.0.1:443: connection refused"))},
			[]string{"connecting: dial tcp 10.0.0.1:443: connection refused;dial tcp"}},
		"a hostile name": {Options{Dial: dial(errors.New("x509: valid for \x1b[31m\u202eevil\r\n" + strings.Repeat("long", 1000)))},
			[]string{"x509: valid for ?[31m?evil?;long"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				tc.opt.URL, tc.opt.Connections, tc.opt.Log = "https://push.example", 1, j.log()
				p := open(t, tc.opt)
				submit(t, p, post("/a"))
				j.wantTold(t, p, true, tc.want...)
				if n := len(p.Stats().Trouble.Cause); n > maxCause {
					t.Errorf("%d bytes", n)
				}
			})
		})
	}
}

// The same over real TLS.
func TestCauseOfAFailedHandshakeIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		server func(s *httptest.Server)
		client func(conf *tls.Config)
		want   []string
	}{
		"no ALPN in common": {func(s *httptest.Server) { s.EnableHTTP2, s.TLS = false, &tls.Config{NextProtos: []string{"x"}} }, nil,
			[]string{"TLS handshake", "no application protocol"}},
		"unknown certificate": {nil, func(conf *tls.Config) { conf.RootCAs = nil }, []string{"TLS handshake", "x509: certificate signed by unknown authority"}},
		"another name":        {nil, func(conf *tls.Config) { conf.ServerName = "push.example" }, []string{"TLS handshake", "x509: certificate is valid for", "not push.example"}},
		"an old TLS":          {func(s *httptest.Server) { s.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} }, nil, []string{"TLS handshake", "protocol version"}},
		"a certificate is missing": {func(s *httptest.Server) {
			s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
		}, nil, []string{"TLS handshake", "handshake failure"}},
		"a certificate is missing, TLS 1.3": {func(s *httptest.Server) { s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert} }, nil,
			[]string{"connection lost", "certificate required"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.NotFoundHandler())
			s.EnableHTTP2, s.Config.ErrorLog = true, log.New(io.Discard, "", 0)
			if tc.server != nil {
				tc.server(s)
			}
			s.StartTLS()
			defer s.Close()
			conf := roots(s)
			if tc.client != nil {
				tc.client(conf)
			}
			j := newJournal()
			p := open(t, Options{URL: s.URL, TLS: conf, Connections: 1, Timeout: time.Hour, Resends: -1, Log: j.log()})
			if _, err := p.Submit(t.Context(), 0, posts(1), func([]*Request) {}); err != nil {
				t.Fatal(err)
			}
			<-j.begun
			j.wantTold(t, p, true, tc.want...)
		})
	}
}

// A server without ALPN.
func TestServerWithoutALPNIsTold(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certificate.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1)) // the handshake, and until the client closes the connection
			_ = c.Close()
		}
	})
	defer serving.Wait()
	defer l.Close()
	j := newJournal()
	p := open(t, Options{URL: "https://" + l.Addr().String(), TLS: roots(certificate), Connections: 1, Timeout: time.Hour, Log: j.log()})
	if _, err := p.Submit(t.Context(), 0, posts(1), func([]*Request) {}); err != nil {
		t.Fatal(err)
	}
	<-j.begun
	j.wantTold(t, p, true, `does not speak HTTP/2: it chose "" (ALPN)`)
}

// What a server says when it ends a connection is reported, without words that
// may be an echo of a token, a password or a message. The trouble is over with
// the next first answer.
func TestCauseOfAnEndIsTold(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tc := range map[string]struct {
		end   func(c *peerConn)
		want  string
		lasts bool
	}{
		"a reason":           {func(c *peerConn) { c.WriteGoAway(0, http2.ErrCodeNo, []byte(`{"reason":"Shutdown"}`)) }, `NO_ERROR ({"reason":"Shutdown"})`, true},
		"words":              {func(c *peerConn) { c.WriteGoAway(0, http2.ErrCodeProtocol, []byte("max_age of the\x1b[2J connection")) }, "PROTOCOL_ERROR (max_age of the?[2J connection)", true},
		"an echo of a token": {func(c *peerConn) { c.WriteGoAway(0, http2.ErrCodeNo, []byte(`{"reason":"`+token+`"}`)) }, `NO_ERROR ({"reason":"***"})`, true},
		"of a password":      {func(c *peerConn) { c.WriteGoAway(0, http2.ErrCodeNo, []byte("code 123456, or 123-456")) }, `NO_ERROR (code ***, or ***)`, true},
		"of a key":           {func(c *peerConn) { c.WriteGoAway(0, http2.ErrCodeNo, []byte(strings.Repeat("Ab", 25)+" end")) }, `NO_ERROR (*** end)`, true},
		"too long":           {func(c *peerConn) { c.WriteGoAway(0, http2.ErrCodeNo, []byte(strings.Repeat("ab ", 1000))) }, strings.Repeat("ab ", 42) + "***)", true},
		"nothing":            {func(c *peerConn) { c.WriteGoAway(0, http2.ErrCodeNo, nil) }, "server is going away: NO_ERROR", true},
		"it hangs up":        {func(c *peerConn) {}, "connection lost: EOF", true},
		"a frame too long": {func(c *peerConn) {
			c.raw(http2.FrameData, 0, 1, make([]byte, 17<<10))
			time.Sleep(100 * time.Millisecond) // it does not read why the connection ends
		}, "FRAME_SIZE_ERROR", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal()
				s := newPeer(t)
				s.script = func(c *peerConn, n int) {
					stream := c.request()
					if n == 1 {
						c.next() // the client's acknowledgement of SETTINGS: it has nothing more to write
						tc.end(c)
						c.out.flush()
						return
					}
					for ; stream != 0; stream = c.request() {
						c.answer(stream)
					}
				}
				p := s.pool(Options{Connections: 1, Timeout: time.Hour, Resends: -1, Log: j.log()})
				submit(t, p, post("/a")).wait()
				synctest.Wait()
				j.wantTold(t, p, tc.lasts, tc.want)
				submit(t, p, post("/b")).wait()
				synctest.Wait()
				j.wantTold(t, p, false, tc.want)
				if all := strings.Join(j.lines(), "\n"); strings.Contains(all, "01234567") || strings.Contains(all, "456") {
					t.Errorf("secrets in\n%s", all)
				}
			})
		})
	}
}

// An orderly end by the server is reported, but is not a trouble.
func TestGracefulEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		s := newStage(t)
		p := s.pool(Options{Connections: 1, Log: j.log()})
		l := submit(t, p, post("/a"))
		s.answers(1)
		l.wait()
		s.conn().WriteGoAway(1<<31-1, http2.ErrCodeNo, []byte(`{"reason":"Shutdown"}`))
		synctest.Wait()
		j.wantTold(t, p, false, `NO_ERROR ({"reason":"Shutdown"})`)
		if line := j.lines()[0]; !strings.Contains(line, "level=INFO") || !strings.Contains(line, "unanswered=0") || strings.Contains(line, "untold") {
			t.Errorf("%s", line)
		}
	})
}

// An end by the client is not a trouble.
func TestOwnEndsAreNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		s := newStage(t)
		p := s.pool(Options{Connections: 1, Log: j.log()})
		for range 3 {
			r := post("/a")
			l := submit(t, p, r)
			s.untilOpen(1)
			s.answers(1)
			l.wait()
			p.Retire(r)
			synctest.Wait()
		}
		l := submit(t, p, post("/unanswered"))
		done, cancel := context.WithCancel(t.Context())
		cancel()
		p.Close(done)
		l.wait()
		if got := p.Stats().Trouble; got != (Trouble{}) || j.b.Len() > 0 {
			t.Errorf("%+v, logged\n%s", got, &j.b)
		}
	})
}

// A provider that is down for long does not fill the log.
func TestTroublesAreLoggedAtARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		p := open(t, Options{URL: "https://push.example", Connections: 10, Timeout: time.Hour, Backoff: time.Millisecond, MaxBackoff: time.Millisecond, Log: j.log(),
			Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("refused") }})
		submit(t, p, posts(100)...)
		time.Sleep(10 * time.Minute)
		lines := j.lines()
		if most := 10*6 + troubleLines; len(lines) > most || len(lines) < most-3 || p.Stats().DialFailures < 1000 {
			t.Errorf("%d lines of %d failures", len(lines), p.Stats().DialFailures)
		}
		told := int64(len(lines))
		for _, line := range lines {
			if _, n, ok := strings.Cut(line, "untold="); ok {
				untold, err := strconv.ParseInt(n, 10, 64)
				if told += untold; err != nil {
					t.Fatal(err)
				}
			}
		}
		if all := p.Stats().DialFailures; told > all || told < all/2 {
			t.Errorf("%d of %d failures are told or counted", told, all)
		}
	})
}

// A word with three digits is hidden, one with two is not.
func TestWordsThatMayBeASecretAreHidden(t *testing.T) {
	for said, want := range map[string]string{
		"code 471 for shop":                    "code *** for shop",
		"code 4a7-b1 for shop":                 "code *** for shop",
		"code 000 for shop":                    "code *** for shop",
		"code 999 for shop":                    "code *** for shop",
		"a/b/c, d:e:f and g;h;i":               "a/b/c, d:e:f and g;h;i",
		"HTTP 42 of shop":                      "HTTP 42 of shop",
		strings.Repeat("a", 40) + " end":       strings.Repeat("a", 40) + " end",
		strings.Repeat("a", 41) + " end":       "*** end",
		strings.Repeat("a ", 60) + "allofits":  strings.Repeat("a ", 60) + "allofits",
		strings.Repeat("a ", 60) + "allofitis": strings.Repeat("a ", 60) + "***", // what is cut may be the start of a secret
	} {
		if got := serversWords([]byte(said)); got != want {
			t.Errorf("%q is told as %q, want %q", said, got, want)
		}
	}
}
