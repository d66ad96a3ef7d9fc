package sim

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// dialPlain dials a simulator without ALPN, as Pushy does.
func dialPlain(t *testing.T, s *Server) *tls.Conn {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), s.ClientTLS())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	if p := conn.ConnectionState().NegotiatedProtocol; p != "" {
		t.Fatalf("negotiated %q", p)
	}
	if err := conn.SetDeadline(time.Now().Add(liveness)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// derToken is a provider token whose signature is in DER, as Pushy makes it.
func derToken(t *testing.T, c *Credentials, at time.Time) string {
	t.Helper()
	raw := sign(t, map[string]any{"alg": "ES256", "kid": c.KeyID}, map[string]any{"iss": c.TeamID, "iat": at.Unix()}, c.key)
	signed := raw[:strings.LastIndexByte(raw, '.')]
	sum := sha256.Sum256([]byte(signed))
	der, err := ecdsa.SignASN1(rand.Reader, c.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return "bearer " + signed + "." + base64.RawURLEncoding.EncodeToString(der)
}

// A client that offers no ALPN and begins with HTTP/2's preface is served like
// any other, in whatever pieces the preface comes.
func TestPrefaceWithoutALPN(t *testing.T) {
	for why, piece := range map[string]int{"at once": 1 << 20, "byte by byte": 1} {
		t.Run(why, func(t *testing.T) {
			w := dialWire(t, Options{})
			w.conn = dialPlain(t, w.server)
			w.Framer = http2.NewFramer(&w.out, w.conn)
			stand := newStand(t, nil)
			stand.clock = time.Now()
			push := stand.push()
			for i := range push.Fields {
				if push.Fields[i].Name == "authorization" {
					push.Fields[i].Value = derToken(t, stand.shop, stand.clock)
				}
			}
			w.must(w.WriteSettings()) // behind dialWire's, which has not been written yet
			id := w.request(push)
			for out := w.out.Bytes(); len(out) > 0; {
				n := min(piece, len(out))
				_, err := w.conn.Write(out[:n])
				w.must(err)
				out = out[n:]
			}
			w.until(func(f http2.Frame) bool { return of[*http2.HeadersFrame](f) && f.Header().StreamID == id })
			if got := w.server.Ledger().Totals(); got.Accepted != 1 {
				t.Errorf("got %+v, want one accepted", got)
			}
		})
	}
}

// HTTP/1.1 without ALPN is served too, also when it looks like the preface at
// first.
func TestHTTP1WithoutALPN(t *testing.T) {
	s := dialWire(t, Options{}).server
	for request, want := range map[string]int{
		"GET /token HTTP/1.1\r\nHost: x\r\n\r\n":                       http.StatusMethodNotAllowed,
		"PRI /token HTTP/1.1\r\nHost: x\r\n\r\n":                       http.StatusMethodNotAllowed,
		"POST /token HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n": http.StatusBadRequest,
	} {
		conn := dialPlain(t, s)
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != want {
			t.Errorf("%q: got %d %v, want %d", request, answer.StatusCode, err, want)
		}
	}
}

// A client that says nothing, or half a preface, does not hold up the end.
func TestSilenceWithoutALPN(t *testing.T) {
	w := dialWire(t, Options{})
	for _, text := range []string{"", http2.ClientPreface[:10]} {
		if _, err := io.WriteString(dialPlain(t, w.server), text); err != nil {
			t.Fatal(err)
		}
	}
	w.must(w.server.Close())
}

// Apple takes signatures as the standard of JWT has them, and in DER.
func TestSignatureForms(t *testing.T) {
	s := newStand(t, nil)
	der := derToken(t, s.shop, s.clock)
	dot := strings.LastIndexByte(der, '.') + 1
	signature, err := base64.RawURLEncoding.DecodeString(der[dot:])
	if err != nil {
		t.Fatal(err)
	}
	with := func(signature []byte) string { return der[:dot] + base64.RawURLEncoding.EncodeToString(signature) }
	stranger := *s.shop
	stranger.key = s.other.key
	for why, tt := range map[string]struct {
		token string
		want  Reply
	}{
		"r and s":              {s.providerToken(s.shop, s.clock), APNSAccepted},
		"DER":                  {der, APNSAccepted},
		"DER of another key":   {derToken(t, &stranger, s.clock), APNSInvalidProviderToken},
		"DER with more behind": {with(append(bytes.Clone(signature), 0)), APNSInvalidProviderToken},
		"DER cut off":          {with(signature[:len(signature)-1]), APNSInvalidProviderToken},
		"64 bytes of nothing":  {with(make([]byte, 64)), APNSInvalidProviderToken},
		"nothing":              {with(nil), APNSInvalidProviderToken},
	} {
		req := s.push()
		for i := range req.Fields {
			if req.Fields[i].Name == "authorization" {
				req.Fields[i].Value = tt.token
			}
		}
		var ans Answer
		if s.policy.Answer(req, &ans); ans.Reply != tt.want {
			t.Errorf("%s: got %s, want %s", why, ans.Reply, tt.want)
		}
	}
}
