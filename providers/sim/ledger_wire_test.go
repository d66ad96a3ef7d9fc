package sim

import (
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// told is what a client knows of one push.
type told struct {
	id       string
	complete bool          // the request was sent to its end
	wrong    bool          // and breaks a rule of HTTP/2
	canceled bool          // by the client
	heard    bool          // the whole answer came
	reset    http2.ErrCode // by the server
	isReset  bool
}

// over reports whether nothing more will come of it.
func (s *told) over() bool { return s.heard || s.isReset || s.canceled }

// client plays against a simulator, and keeps its own account.
type client struct {
	*wire
	random  *rand.Rand
	good    *Request
	streams map[uint32]*told
	newest  []uint32
	last    uint32 // of the server's GOAWAY; 0 before
	limit   uint32 // of streams, as last granted
}

// play does one random thing.
func (c *client) play() {
	stream := c.ID
	s := &told{id: fmt.Sprint("n", stream)}
	push := *c.good
	push.Body = fmt.Appendf(nil, `{"aps":{"alert":"x"},"pf_id":%q}`, s.id)
	if c.random.IntN(4) == 0 {
		push.Body = fmt.Appendf(nil, `{"pf_id":%q}`, s.id) // no aps: refused, with a body
		push.Fields = push.Fields[:1]
	}
	past := uint32(1)
	if len(c.newest) > 0 {
		past = c.newest[max(0, len(c.newest)-1-c.random.IntN(20))]
	}
	switch n := c.random.IntN(12); {
	case n < 6:
		s.complete = true
		c.request(&push)
	case n == 6:
		c.Open() // and its body later, or never
	case n == 7:
		s.wrong, s.complete = true, true
		push.Fields = append(push.Fields[:len(push.Fields):len(push.Fields)], Field{Name: "content-length", Value: "1"})
		c.request(&push)
	case n == 8 && c.streams[past] != nil && !c.streams[past].canceled:
		c.Must(c.WriteRSTStream(past, http2.ErrCodeCancel))
		c.streams[past].canceled = true
		return
	case n == 9 && c.streams[past] != nil && !c.streams[past].complete && !c.streams[past].canceled:
		c.Must(c.WriteData(past, true, fmt.Appendf(nil, `{"pf_id":%q}`, c.streams[past].id)))
		c.streams[past].complete = true
		return
	case n == 10 && c.streams[past] != nil && c.streams[past].complete && !c.streams[past].canceled:
		c.Must(c.WriteRawFrame(http2.FrameData, 0, past, []byte("more")))
		return
	case n == 11 && c.streams[past] != nil && !c.streams[past].canceled:
		c.Must(c.WriteWindowUpdate(past, 1+uint32(c.random.IntN(50))))
		return
	default:
		return
	}
	c.streams[stream] = s
	c.newest = append(c.newest, stream)
}

// take takes a frame of the server's, and reports whether it is the PING that
// ends a round.
func (c *client) take(f http2.Frame) bool {
	s := c.streams[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.GoAwayFrame:
		if f.ErrCode != http2.ErrCodeNo {
			c.T.Fatalf("got %v %s", f, f.DebugData())
		}
		c.last = f.LastStreamID
		return false
	case *http2.SettingsFrame:
		if n, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
			c.limit = n
		}
	case *http2.RSTStreamFrame:
		s.reset, s.isReset = f.ErrCode, true
	case *http2.HeadersFrame:
		s.heard = f.StreamEnded()
	case *http2.DataFrame:
		s.heard = f.StreamEnded()
	case *http2.PingFrame:
		return true
	}
	return false
}

// The ledger says of every push what its client saw: what was answered is
// decided and not dropped, what was decided and not answered is dropped, and
// what the server did not take is not there. Nothing stays open.
func TestLedgerAgreesWithItsClient(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 9))
			c := &client{
				wire: dialWire(t, Options{
					Seed: seed, MaxConcurrentStreams: 20 + random.IntN(50),
					Faults: RouteSet{APNS: Faults{Latency: time.Duration(random.IntN(3)) * time.Millisecond, Jitter: time.Duration(random.IntN(20)) * time.Millisecond, Unavailable: 0.2}},
				}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(random.IntN(60))}),
				random: random, streams: map[uint32]*told{},
			}
			c.AllowIllegalWrites = true
			stand := newStand(t, nil)
			stand.clock = time.Now()
			c.good = stand.push()
			for range 60 {
				for range random.IntN(20) {
					c.play()
				}
				if random.IntN(60) == 0 {
					c.order(Command{Do: "slow_down", Provider: "apns"})
				}
				if random.IntN(20) == 0 {
					c.order(Command{Do: "hang", Provider: "apns", Times: 1 + random.IntN(3)})
				}
				c.Must(c.WritePing(false, [8]byte{}))
				c.Flush()
				c.Until(c.take)
			}
			c.order(Command{Do: "calm"})
			if end := []string{"", "drain", "abandon", "kill"}[seed%4]; end == "" {
				c.finish()
			} else {
				c.breakOff(end)
			}
			c.audit()
		})
	}
}

// relent gives all answers room, and takes back what will never have one.
func (c *client) relent() {
	c.Must(c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	for id, s := range c.streams {
		if !s.canceled && (!s.complete || c.hangs(id)) {
			c.Must(c.WriteRSTStream(id, http2.ErrCodeCancel))
			s.canceled = true
		}
	}
	c.Must(c.WritePing(false, [8]byte{}))
}

// finish waits for all answers. Then nothing is open: there is room for as many
// streams as were granted.
func (c *client) finish() {
	c.relent()
	c.Flush()
	c.Until(c.take)
	for _, s := range c.streams {
		if !s.over() {
			c.Until(func(f http2.Frame) bool { c.take(f); return s.over() })
		}
	}
	for range c.limit {
		c.Open()
	}
	over := c.Open()
	c.Must(c.WritePing(false, [8]byte{}))
	c.Flush()
	var refused []uint32
	c.Until(func(f http2.Frame) bool {
		if wiretest.Of[*http2.RSTStreamFrame](f) {
			refused = append(refused, f.Header().StreamID)
		}
		return wiretest.Of[*http2.PingFrame](f)
	})
	if !slices.Equal(refused, []uint32{over}) {
		c.T.Errorf("streams %v are refused, want %d, which is one more than the %d granted", refused, over, c.limit)
	}
}

// hangs reports whether a stream will never have an answer.
func (c *client) hangs(id uint32) bool {
	return slices.ContainsFunc(c.server.Events().After(0, 0), func(e Event) bool { return e.Do == DoHang.String() && e.Stream == id })
}

// breakOff has the server end the connection, in the middle of some pushes.
func (c *client) breakOff(how string) {
	for range 10 {
		c.play()
	}
	if c.random.IntN(2) == 0 { // some answers are on their way, newer ones before older
		c.Must(c.WritePing(false, [8]byte{}))
		c.Flush()
		c.Until(c.take)
	}
	c.Flush()
	c.order(Command{Do: how, Provider: "apns", Unprocessed: c.random.IntN(20)})
	c.relent()
	_, _ = c.Conn.Write(c.Out.Bytes()) // the end may come in the middle
	c.Must(c.Conn.SetReadDeadline(time.Now().Add(wiretest.Liveness)))
	for {
		f, err := c.ReadFrame()
		if err != nil {
			break // all has been said
		}
		c.take(f)
	}
	if c.last == 0 && how != "kill" {
		c.T.Error("no GOAWAY")
	}
	c.Must(c.server.Close())
}

// audit compares.
func (c *client) audit() {
	l := c.server.Ledger()
	var decided, dropped uint64
	for stream, s := range c.streams {
		e, known := l.Entry(s.id, DeviceHash(APNS, goodToken))
		n := e.Accepted + e.Refused
		decided, dropped = decided+uint64(n), dropped+uint64(e.Dropped)
		bad := ""
		switch {
		case n > 1 || e.Dropped > 1 || known && n+e.Dropped == 0:
			bad = "counted twice"
		case s.heard && (n != 1 || e.Dropped != 0):
			bad = "it was answered"
		case c.last != 0 && stream > c.last && n != 0:
			bad = "it stands behind GOAWAY's last stream"
		case s.isReset && s.reset == http2.ErrCodeRefusedStream && n != 0:
			bad = "it was refused"
		case s.isReset && s.reset == http2.ErrCodeProtocol && known:
			bad = "it was malformed"
		case n == 1 && !s.heard && e.Dropped != 1:
			bad = "it was never answered"
		case s.wrong && known:
			bad = "it is malformed"
		}
		if bad != "" {
			c.T.Errorf("stream %d: %+v, but the ledger says %+v: %s", stream, *s, e, bad)
		}
	}
	if got := l.Totals(); got.Accepted+got.Refused != decided || got.Dropped != dropped || got.Duplicates != 0 || got.WithoutID != 0 {
		c.T.Errorf("got %+v, want %d decided and %d dropped", got, decided, dropped)
	}
}

// pipes is a listener of connections without a network: a write is over when
// the other side has read it.
type pipes struct{ conns chan net.Conn }

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p *pipes) Close() error   { close(p.conns); return nil } // the engine closes it once
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// Of the answers that go out in one write, those count that got out before the
// client went away.
func TestWriteThatBreaksOff(t *testing.T) {
	const all, heard = 2000, 700
	s, err := New(Options{MaxConcurrentStreams: all})
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	l := &pipes{make(chan net.Conn, 1)}
	l.conns <- far
	served := make(chan error)
	go func() { served <- s.Serve(l) }()
	config := s.ClientTLS()
	config.NextProtos, config.ServerName = []string{http2.NextProtoTLS}, "localhost"
	w := wiretest.New(t, tls.Client(near, config), pushHead, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	w.Must(w.WriteWindowUpdate(0, 1<<20))
	for i := range all {
		w.Push(fmt.Sprintf(`{"pf_id":"n%d"}`, 1+2*i))
	}
	w.Flush()
	for s.Ledger().Totals().Received < all {
		time.Sleep(time.Millisecond) // until all wait for the one who reads
	}
	var streams []uint32
	w.Until(func(f http2.Frame) bool {
		if wiretest.Of[*http2.DataFrame](f) && f.(*http2.DataFrame).StreamEnded() {
			streams = append(streams, f.Header().StreamID)
		}
		return len(streams) == heard
	})
	w.Must(near.Close())
	w.Must(s.Close())
	w.Must(<-served)
	for _, id := range streams {
		if e, _ := s.Ledger().Entry(fmt.Sprint("n", id), DeviceHash(APNS, goodToken)); e.Dropped != 0 {
			t.Fatalf("got %+v, and the client has its answer", e)
		}
	}
	if got := s.Ledger().Totals(); got.Answered < heard || got.Dropped == 0 {
		t.Errorf("got %+v, want at least %d answered, and some dropped", got, heard)
	}
}
