package sim

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// liveness ends a wait that hangs. It is no expectation: the machine may be
// busy with something else.
const liveness = time.Minute

// wire is a client on the level of frames.
type wire struct {
	t      testing.TB
	server *Server
	conn   *tls.Conn
	*http2.Framer
	out   bytes.Buffer
	block bytes.Buffer
	enc   *hpack.Encoder
	dec   *hpack.Decoder
	id    uint32
}

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
	w := &wire{t: t, server: s, conn: conn, id: 1}
	w.Framer = http2.NewFramer(&w.out, conn)
	w.enc = hpack.NewEncoder(&w.block)
	w.dec = hpack.NewDecoder(4096, nil)
	w.out.WriteString(http2.ClientPreface)
	w.must(w.WriteSettings(settings...))
	return w
}

func (w *wire) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) flush() {
	w.t.Helper()
	_, err := w.conn.Write(w.out.Bytes())
	w.must(err)
	w.out.Reset()
}

// head encodes the header of a push that is missing its topic: an answer with
// a body that needs no credentials.
func (w *wire) head() []byte {
	w.block.Reset()
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/3/device/" + goodToken}, {"apns-priority", "10"}} {
		w.must(w.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
	}
	return w.block.Bytes()
}

func (w *wire) push(body string) (id uint32) {
	id = w.id
	w.id += 2
	w.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.head(), EndHeaders: true}))
	w.must(w.WriteData(id, true, []byte(body)))
	return id
}

// until reads frames until one satisfies f.
func (w *wire) until(f func(http2.Frame) bool) http2.Frame {
	w.t.Helper()
	w.must(w.conn.SetReadDeadline(time.Now().Add(liveness)))
	for {
		frame, err := w.ReadFrame()
		w.must(err)
		if f(frame) {
			return frame
		}
	}
}

func of[T http2.Frame](f http2.Frame) bool { _, ok := f.(T); return ok }

// ended is the last frame of an answer.
func ended(id uint32) func(http2.Frame) bool {
	return func(f http2.Frame) bool {
		return f.Header().StreamID == id && f.Header().Flags.Has(http2.FlagDataEndStream)
	}
}

func TestWireSettings(t *testing.T) {
	w := dialWire(t, Options{MaxConcurrentStreams: 7})
	w.flush()
	f := w.until(of[*http2.SettingsFrame]).(*http2.SettingsFrame)
	if n, ok := f.Value(http2.SettingMaxConcurrentStreams); !ok || n != 7 {
		t.Errorf("got MAX_CONCURRENT_STREAMS %d, want 7", n)
	}
	w.until(func(f http2.Frame) bool {
		return of[*http2.SettingsFrame](f) && f.Header().Flags.Has(http2.FlagSettingsAck)
	})
	w.must(w.WritePing(false, [8]byte{1, 2, 3}))
	w.flush()
	if p := w.until(of[*http2.PingFrame]).(*http2.PingFrame); !p.IsAck() || p.Data != [8]byte{1, 2, 3} {
		t.Errorf("got %v, want the ping back", p)
	}
}

// A window of nothing holds the body of a refusal back until it opens, and
// then lets exactly as much through as there is room for.
func TestWireFlowControl(t *testing.T) {
	w := dialWire(t, Options{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	id := w.push(`{}`)
	w.must(w.WritePing(false, [8]byte{}))
	w.flush()
	w.until(of[*http2.PingFrame])
	w.must(w.WriteWindowUpdate(id, 5))
	w.flush()
	d := w.until(of[*http2.DataFrame]).(*http2.DataFrame)
	text := string(d.Data())
	if len(text) != 5 || d.StreamEnded() {
		t.Fatalf("got %q, want five bytes of more", text)
	}
	w.must(w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
	w.flush()
	d = w.until(of[*http2.DataFrame]).(*http2.DataFrame)
	if text += string(d.Data()); text != `{"reason":"MissingTopic"}` || !d.StreamEnded() {
		t.Errorf("got %q", text)
	}
}

// Header blocks in pieces, padding, priorities, trailers and unknown frames
// are all part of the protocol.
func TestWireForms(t *testing.T) {
	w := dialWire(t, Options{})
	block := bytes.Clone(w.head())
	w.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:3], PadLength: 9, Priority: http2.PriorityParam{Weight: 3}}))
	w.must(w.WriteContinuation(1, false, block[3:10]))
	w.must(w.WriteContinuation(1, true, block[10:]))
	w.must(w.WriteRawFrame(0xfa, 0, 1, []byte("unknown")))
	w.must(w.WriteDataPadded(1, false, []byte(`{"pf_id":`), make([]byte, 20)))
	w.must(w.WriteData(1, false, []byte(`"n1"}`)))
	w.block.Reset()
	w.must(w.enc.WriteField(hpack.HeaderField{Name: "x-trailer", Value: "y"}))
	w.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.block.Bytes(), EndHeaders: true, EndStream: true}))
	w.flush()
	w.until(ended(1))
	if e, _ := w.server.Ledger().Entry("n1", DeviceHash(APNS, goodToken)); e.Refused != 1 {
		t.Errorf("got %+v, want the push to be read whole", e)
	}
}

func TestWireRefusesTooManyStreams(t *testing.T) {
	w := dialWire(t, Options{MaxConcurrentStreams: 2, Faults: RouteSet{APNS: Faults{Latency: time.Hour}}})
	w.push(`{}`)
	w.push(`{}`)
	third := w.push(`{}`)
	w.flush()
	if f := w.until(of[*http2.RSTStreamFrame]).(*http2.RSTStreamFrame); f.StreamID != third || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("got %v, want the third stream refused", f)
	}
	// Resetting a stream makes room.
	w.must(w.WriteRSTStream(1, http2.ErrCodeCancel))
	w.push(`{}`)
	w.must(w.WritePing(false, [8]byte{}))
	w.flush()
	w.until(func(f http2.Frame) bool {
		if of[*http2.RSTStreamFrame](f) {
			t.Errorf("got %v after making room", f)
		}
		return of[*http2.PingFrame](f)
	})
}

func TestWireViolations(t *testing.T) {
	for _, tt := range []struct {
		why  string
		do   func(*wire) error
		want http2.ErrCode
	}{
		{"even stream", func(w *wire) error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: w.head(), EndHeaders: true})
		}, http2.ErrCodeProtocol},
		{"stream backwards", func(w *wire) error {
			w.id = 5
			w.push(`{}`)
			w.id = 3
			w.push(`{}`)
			return nil
		}, http2.ErrCodeStreamClosed},
		{"frame too long", func(w *wire) error { return w.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, maxFrame+1)) }, http2.ErrCodeFrameSize},
		{"broken HPACK", func(w *wire) error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}, http2.ErrCodeCompression},
		{"header block interrupted", func(w *wire) error {
			return errors.Join(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.head()}), w.WritePing(false, [8]byte{}))
		}, http2.ErrCodeProtocol},
		{"endless header", func(w *wire) error {
			err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.head()})
			for range 3 {
				err = errors.Join(err, w.WriteContinuation(1, false, make([]byte, maxFrame)))
			}
			return err
		}, http2.ErrCodeEnhanceYourCalm},
		{"window overflows", func(w *wire) error { return w.WriteWindowUpdate(0, maxWindow) }, http2.ErrCodeFlowControl},
		{"padding longer than the frame", func(w *wire) error {
			return w.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 1})
		}, http2.ErrCodeProtocol},
	} {
		t.Run(tt.why, func(t *testing.T) {
			w := dialWire(t, Options{})
			w.AllowIllegalWrites = true
			w.must(tt.do(w))
			w.flush()
			if f := w.until(of[*http2.GoAwayFrame]).(*http2.GoAwayFrame); f.ErrCode != tt.want {
				t.Errorf("got %v, want %v", f.ErrCode, tt.want)
			}
		})
	}
}

// Shutdown lets what is in flight be answered, and takes nothing new.
func TestWireShutdown(t *testing.T) {
	w := dialWire(t, Options{Faults: RouteSet{APNS: Faults{Latency: 50 * time.Millisecond}}})
	id := w.push(`{}`)
	w.flush()
	for w.server.Ledger().Totals().Received == 0 {
		time.Sleep(time.Millisecond)
	}
	done := make(chan error)
	go func() { done <- w.server.Shutdown(context.Background()) }()
	if f := w.until(of[*http2.GoAwayFrame]).(*http2.GoAwayFrame); f.LastStreamID != id || f.ErrCode != http2.ErrCodeNo {
		t.Errorf("got %v, want NO_ERROR after stream %d", f, id)
	}
	w.until(ended(id))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := w.ReadFrame(); !errors.Is(err, io.EOF) && err == nil {
		t.Errorf("got %v, want the end", err)
	}
}

// The wheel gives everything back once, in time and in order, also after it
// stood still and when it goes around.
func TestWheel(t *testing.T) {
	var w wheel
	now := time.Unix(1_800_000_000, 0)
	put := func(b byte, after time.Duration) {
		t.Helper()
		slot := w.slot(now, after)
		if slot == nil {
			t.Fatalf("%v does not fit", after)
		}
		slot.frames = append(slot.frames, b)
		slot.owed = append(slot.owed, owed{stream: uint32(b)})
	}
	check := func(move time.Duration, want string, wantWait time.Duration) {
		t.Helper()
		now = now.Add(move)
		var out batch
		n, wait := w.due(now, &out)
		if string(out.frames) != want || n != len(want) || len(out.owed) != n || wait != wantWait {
			t.Errorf("got %q (%d answers), next in %v; want %q, next in %v", out.frames, n, wait, want, wantWait)
		}
	}
	const ms = time.Millisecond
	check(0, "", 0)
	put('c', 50*ms)
	put('a', 10*ms)
	put('b', 10*ms)
	check(9*ms, "", ms)
	check(ms, "ab", 40*ms)
	check(time.Second, "c", 0)
	check(time.Hour, "", 0)
	put('d', 4*time.Second)
	put('e', ms/2)
	check(ms, "e", 4*time.Second-ms)
	check(4*time.Second, "d", 0)
	if w.slot(now, 5*time.Second) != nil {
		t.Error("it took what is due after more than a round")
	}
}

// What is due within a tick goes out together, when the last of it is due:
// nothing is early, and nothing a millisecond late.
func TestWheelPrecision(t *testing.T) {
	var w wheel
	start := time.Unix(1_800_000_000, 0)
	random := rand.New(rand.NewPCG(1, 2))
	due := map[uint32]time.Duration{}
	var since time.Duration
	var wake time.Duration
	for id := uint32(1); id < 20_000; id++ {
		since += time.Duration(random.IntN(100)) * time.Microsecond
		for wake > 0 && wake <= since {
			var out batch
			n, wait := w.due(start.Add(wake), &out)
			for _, o := range out.owed {
				if late := wake - due[o.stream]; late < 0 || late >= 2*wheelTick {
					t.Fatalf("stream %d went out %v after its time", o.stream, late)
				}
				delete(due, o.stream)
			}
			if n != len(out.owed) || wait < 0 || wait == 0 && len(due) > 0 {
				t.Fatalf("%d answers of %d, the next in %v; %d are missing", n, len(out.owed), wait, len(due))
			}
			wake += wait
			if wait == 0 {
				wake = 0
			}
		}
		latency := time.Duration(random.IntN(80_000)) * time.Microsecond
		s := w.slot(start.Add(since), latency)
		s.owed = append(s.owed, owed{stream: id})
		due[id] = since + latency
		// As the writer does when it is told that there is something new.
		var out batch
		_, wait := w.due(start.Add(since), &out)
		for _, o := range out.owed {
			if late := since - due[o.stream]; late < 0 || late >= 2*wheelTick {
				t.Fatalf("stream %d went out %v after its time", o.stream, late)
			}
			delete(due, o.stream)
		}
		if wake = 0; wait > 0 {
			wake = since + wait
		}
	}
	if len(w.free) > 1000 {
		t.Errorf("%d batches are kept", len(w.free))
	}
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
	fields := [][2]string{{":method", "POST"}, {":scheme", "https"}, {":authority", "x"}, {":path", push.Path}}
	for _, f := range push.Fields {
		if f.Name != "apns-expiration" {
			fields = append(fields, [2]string{f.Name, f.Value})
		}
	}
	send := func() {
		for range group {
			w.block.Reset()
			for _, f := range fields {
				w.must(w.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}))
			}
			w.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.id, BlockFragment: w.block.Bytes(), EndHeaders: true}))
			w.must(w.WriteData(w.id, true, push.Body))
			w.id += 2
		}
		w.flush()
	}
	b.ReportAllocs()
	for i := 0; i < b.N; i += group {
		send()
		for n := 0; n < group; {
			f, err := w.ReadFrame()
			w.must(err)
			if of[*http2.GoAwayFrame](f) || of[*http2.RSTStreamFrame](f) {
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
