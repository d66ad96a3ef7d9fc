package sim

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// wire is a client on the level of frames, with its simulator.
type wire struct {
	*wiretest.Client
	server *Server
}

// pushHead is of a push that is missing its topic: an answer with a body that
// needs no credentials.
var pushHead = []string{":method=POST", ":scheme=https", ":authority=x", ":path=/3/device/" + goodToken}

func dialWire(t testing.TB, o Options, settings ...http2.Setting) *wire {
	t.Helper()
	o.Apps = append(o.Apps, twoApps()[0].App())
	s, err := New(o)
	if err == nil {
		err = s.Start("127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	config := s.ClientTLS()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close() // may be closed by the server already
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &wire{wiretest.New(t, conn, pushHead, settings...), s}
}

// benchmarkServe measures client and server together: 500 pushes a write.
func benchmarkServe(b *testing.B, o Options) {
	const group = 500
	o.CountOnly = true
	w := dialWire(b, o)
	w.SetReuseFrames()
	stand := newStand(b, nil)
	stand.clock = time.Now()
	push := stand.push()
	fields := slices.DeleteFunc(header(push), func(f hpack.HeaderField) bool { return f.Name == "apns-expiration" })
	send := func() {
		for range group {
			w.Must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.ID, BlockFragment: w.Block(fields...), EndHeaders: true}))
			w.Must(w.WriteData(w.ID, true, push.Body))
			w.ID += 2
		}
		w.Flush()
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += group {
		send()
		for n := 0; n < group; {
			f, err := w.ReadFrame()
			w.Must(err)
			if wiretest.Of[*http2.GoAwayFrame](f) || wiretest.Of[*http2.RSTStreamFrame](f) {
				b.Fatal(f)
			}
			if f.Header().StreamID != 0 && f.Header().Flags.Has(http2.FlagDataEndStream) {
				n++
			}
		}
	}
	if t := w.server.Ledger().Totals(); t.Refused > 0 {
		b.Fatalf("%+v", t)
	}
}

func BenchmarkServe(b *testing.B) {
	b.Run("validated", func(b *testing.B) { benchmarkServe(b, Options{}) })
	b.Run("raw", func(b *testing.B) { benchmarkServe(b, Options{Raw: true}) })
}
