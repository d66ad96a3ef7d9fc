package engine

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// dialPlain dials a server without ALPN, as Pushy does.
func dialPlain(t *testing.T, h *host) *tls.Conn {
	t.Helper()
	conn := h.dial(t)
	if p := conn.ConnectionState().NegotiatedProtocol; p != "" {
		t.Fatalf("negotiated %q", p)
	}
	if err := conn.SetDeadline(time.Now().Add(wiretest.Liveness)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A client that offers no ALPN and begins with HTTP/2's preface is served like
// any other, in whatever pieces the preface comes.
func TestPrefaceWithoutALPN(t *testing.T) {
	for why, piece := range map[string]int{"at once": 1 << 20, "byte by byte": 1} {
		t.Run(why, func(t *testing.T) {
			h := &host{}
			h.start(t)
			w := wiretest.New(t, dialPlain(t, h), head)
			id := w.Push(`{}`)
			for out := w.Out.Bytes(); len(out) > 0; {
				n := min(piece, len(out))
				_, err := w.Conn.Write(out[:n])
				w.Must(err)
				out = out[n:]
			}
			w.Until(wiretest.Ended(id))
			if received, _, _ := h.counts(); received != 1 {
				t.Errorf("%d requests were received, want one", received)
			}
		})
	}
}

// HTTP/1.1 without ALPN is served too, also when it looks like the preface at
// first.
func TestHTTP1WithoutALPN(t *testing.T) {
	h := &host{}
	h.start(t)
	for request, want := range map[string]int{
		"GET /push HTTP/1.1\r\nHost: x\r\n\r\n":                       http.StatusMethodNotAllowed,
		"PRI /push HTTP/1.1\r\nHost: x\r\n\r\n":                       http.StatusBadRequest,
		"POST /push HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n": http.StatusBadRequest,
	} {
		conn := dialPlain(t, h)
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
	h := &host{}
	h.start(t)
	for _, text := range []string{"", http2.ClientPreface[:10]} {
		if _, err := io.WriteString(dialPlain(t, h), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.engine.Close(); err != nil {
		t.Error(err)
	}
}
