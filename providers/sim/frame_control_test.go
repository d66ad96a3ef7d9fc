package sim

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// fields encodes a header block; each is "name=value".
func (w *wire) fields(list ...string) []byte {
	w.block.Reset()
	for _, text := range list {
		name, value, _ := strings.Cut(text, "=")
		w.must(w.enc.WriteField(hpack.HeaderField{Name: name, Value: value}))
	}
	return w.block.Bytes()
}

// begin starts a stream with a header, and returns its number.
func (w *wire) begin(end bool, list ...string) (id uint32) {
	id = w.id
	w.id += 2
	w.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.fields(list...), EndHeaders: true, EndStream: end}))
	return id
}

// open starts a push whose body is still to come.
func (w *wire) open(more ...string) (id uint32) { return w.begin(false, append(pushHead, more...)...) }

var pushHead = []string{":method=POST", ":scheme=https", ":authority=x", ":path=/3/device/" + goodToken}

// complaint is how the server reacts to what a client does against HTTP/2.
type complaint struct {
	why  string
	do   func(*wire)
	code http2.ErrCode
}

// A request that breaks a rule is reset and never decided, and the connection
// serves the next one.
func TestStreamErrors(t *testing.T) {
	body := func(w *wire, id uint32, end bool, text string) { w.must(w.WriteData(id, end, []byte(text))) }
	header := func(list ...string) func(*wire) {
		return func(w *wire) { body(w, w.begin(false, list...), true, `{"pf_id":"n1"}`) }
	}
	for _, tt := range []complaint{
		{"upper case", header(append(pushHead, "X-Name=y")...), http2.ErrCodeProtocol},
		{"upper case, indexed", func(w *wire) {
			header(append(pushHead, "X-Name=y")...)(w)
			header(append(pushHead, "X-Name=y")...)(w)
			w.flush()
			w.until(of[*http2.RSTStreamFrame])
		}, http2.ErrCodeProtocol},
		{"empty name", header(append(pushHead, "=y")...), http2.ErrCodeProtocol},
		{"space in a name", header(append(pushHead, "a b=y")...), http2.ErrCodeProtocol},
		{"unknown pseudo-header", header(append([]string{":x=y"}, pushHead...)...), http2.ErrCodeProtocol},
		{"pseudo-header of responses", header(append([]string{":status=200"}, pushHead...)...), http2.ErrCodeProtocol},
		{"repeated :method", header(append([]string{":method=POST"}, pushHead...)...), http2.ErrCodeProtocol},
		{"repeated :scheme", header(append([]string{":scheme=https"}, pushHead...)...), http2.ErrCodeProtocol},
		{"repeated :path", header(append([]string{":path=/"}, pushHead...)...), http2.ErrCodeProtocol},
		{"repeated :authority", header(append([]string{":authority=x"}, pushHead...)...), http2.ErrCodeProtocol},
		{"late pseudo-header", header(":method=POST", ":scheme=https", "a=b", ":path=/3/device/x"), http2.ErrCodeProtocol},
		{"no :method", header(pushHead[1:]...), http2.ErrCodeProtocol},
		{"no :scheme", header(":method=POST", ":path=/3/device/x"), http2.ErrCodeProtocol},
		{"no :path", header(pushHead[:3]...), http2.ErrCodeProtocol},
		{"empty :path", header(":method=POST", ":scheme=https", ":path="), http2.ErrCodeProtocol},
		{"connection", header(append(pushHead, "connection=close")...), http2.ErrCodeProtocol},
		{"keep-alive", header(append(pushHead, "keep-alive=1")...), http2.ErrCodeProtocol},
		{"proxy-connection", header(append(pushHead, "proxy-connection=close")...), http2.ErrCodeProtocol},
		{"transfer-encoding", header(append(pushHead, "transfer-encoding=chunked")...), http2.ErrCodeProtocol},
		{"upgrade", header(append(pushHead, "upgrade=h2")...), http2.ErrCodeProtocol},
		{"te", header(append(pushHead, "te=gzip")...), http2.ErrCodeProtocol},
		{"malformed without a body", func(w *wire) { w.begin(true, append(pushHead, "te=gzip")...) }, http2.ErrCodeProtocol},

		{"body longer than content-length", func(w *wire) { body(w, w.open("content-length=1"), true, `{}`) }, http2.ErrCodeProtocol},
		{"body longer, and not at its end", func(w *wire) { body(w, w.open("content-length=1"), false, `{}`) }, http2.ErrCodeProtocol},
		{"body shorter than content-length", func(w *wire) { body(w, w.open("content-length=3"), true, `{}`) }, http2.ErrCodeProtocol},
		{"body shorter, with trailers", func(w *wire) {
			id := w.open("content-length=3")
			body(w, id, false, `{}`)
			w.id = id
			w.begin(true, "a=b")
		}, http2.ErrCodeProtocol},
		{"no body for a content-length", func(w *wire) { w.begin(true, append(pushHead, "content-length=3")...) }, http2.ErrCodeProtocol},
		{"content-length that is no number", func(w *wire) { w.open("content-length=+2") }, http2.ErrCodeProtocol},
		{"two content-lengths", func(w *wire) { w.open("content-length=2", "content-length=3") }, http2.ErrCodeProtocol},

		{"pseudo-header in trailers", func(w *wire) { w.id = w.open(); w.begin(true, ":method=POST") }, http2.ErrCodeProtocol},
		{"connection in trailers", func(w *wire) { w.id = w.open(); w.begin(true, "connection=close") }, http2.ErrCodeProtocol},
		{"trailers that end nothing", func(w *wire) { w.id = w.open(); w.begin(false, "a=b") }, http2.ErrCodeProtocol},

		{"HEADERS that depend on themselves", func(w *wire) {
			p := http2.PriorityParam{StreamDep: w.id, Weight: 1}
			w.must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.id, BlockFragment: w.head(), EndHeaders: true, EndStream: true, Priority: p}))
			w.id += 2
		}, http2.ErrCodeProtocol},
		{"PRIORITY that depends on itself", func(w *wire) { id := w.open(); w.must(w.WritePriority(id, http2.PriorityParam{StreamDep: id})) }, http2.ErrCodeProtocol},
		{"PRIORITY of a wrong length", func(w *wire) { w.must(w.WriteRawFrame(http2.FramePriority, 0, w.open(), make([]byte, 4))) }, http2.ErrCodeFrameSize},

		{"window update by nothing", func(w *wire) { w.must(w.WriteWindowUpdate(w.open(), 0)) }, http2.ErrCodeProtocol},
		{"window overflow", func(w *wire) { w.must(w.WriteWindowUpdate(w.open(), maxWindow)) }, http2.ErrCodeFlowControl},
	} {
		t.Run(tt.why, func(t *testing.T) {
			w := dialWire(t, Options{})
			w.AllowIllegalWrites = true
			tt.do(w)
			w.flush()
			if f := w.until(of[*http2.RSTStreamFrame]).(*http2.RSTStreamFrame); f.StreamID != w.id-2 || f.ErrCode != tt.code {
				t.Errorf("got %v, want %v for stream %d", f, tt.code, w.id-2)
			}
			if got := w.server.Ledger().Totals(); got.Received != 0 {
				t.Errorf("got %+v, want nothing received", got)
			}
			if e := w.server.Events().After(0, 0); len(e) == 0 || e[0].Do != didComplain || !strings.HasPrefix(e[0].Detail, tt.code.String()) {
				t.Errorf("got events %+v, want the complaint", e)
			}
			next := w.push(`{}`)
			w.flush()
			w.until(ended(next))
		})
	}
}

// What no stream can be blamed for, or what shows that the client's idea of
// its streams is wrong, ends the connection.
func TestConnectionErrors(t *testing.T) {
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, length int) func(*wire) {
		return func(w *wire) { w.must(w.WriteRawFrame(kind, flags, stream, make([]byte, length))) }
	}
	setting := func(id http2.SettingID, value uint32) func(*wire) {
		return func(w *wire) { w.must(w.WriteSettings(http2.Setting{ID: id, Val: value})) }
	}
	for _, tt := range []complaint{
		{"DATA of no stream", raw(http2.FrameData, 0, 0, 4), http2.ErrCodeProtocol},
		{"DATA of an idle stream", raw(http2.FrameData, 0, 1, 4), http2.ErrCodeProtocol},
		{"DATA of the server's stream", raw(http2.FrameData, 0, 2, 4), http2.ErrCodeProtocol},
		{"HEADERS of no stream", raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 0, 0), http2.ErrCodeProtocol},
		{"HEADERS of no stream, to be continued", raw(http2.FrameHeaders, 0, 0, 0), http2.ErrCodeProtocol},
		{"HEADERS without their priority", raw(http2.FrameHeaders, http2.FlagHeadersPriority, 1, 4), http2.ErrCodeFrameSize},
		{"HEADERS of a complete request", func(w *wire) { w.id = w.push(`{}`); w.open() }, http2.ErrCodeStreamClosed},
		{"CONTINUATION of nothing", raw(http2.FrameContinuation, 0, 1, 4), http2.ErrCodeProtocol},
		{"CONTINUATION of a complete header", func(w *wire) { raw(http2.FrameContinuation, 0, w.open(), 4)(w) }, http2.ErrCodeProtocol},
		{"PRIORITY of no stream", raw(http2.FramePriority, 0, 0, 5), http2.ErrCodeProtocol},
		{"PRIORITY of an idle stream on itself", func(w *wire) { w.must(w.WritePriority(9, http2.PriorityParam{StreamDep: 9})) }, http2.ErrCodeProtocol},
		{"RST_STREAM of no stream", raw(http2.FrameRSTStream, 0, 0, 4), http2.ErrCodeProtocol},
		{"RST_STREAM of an idle stream", raw(http2.FrameRSTStream, 0, 1, 4), http2.ErrCodeProtocol},
		{"RST_STREAM of a wrong length", func(w *wire) { raw(http2.FrameRSTStream, 0, w.open(), 5)(w) }, http2.ErrCodeFrameSize},
		{"SETTINGS of a stream", raw(http2.FrameSettings, 0, 1, 6), http2.ErrCodeProtocol},
		{"SETTINGS of a wrong length", raw(http2.FrameSettings, 0, 0, 5), http2.ErrCodeFrameSize},
		{"SETTINGS that acknowledge something", raw(http2.FrameSettings, http2.FlagSettingsAck, 0, 6), http2.ErrCodeFrameSize},
		{"ENABLE_PUSH of 2", setting(http2.SettingEnablePush, 2), http2.ErrCodeProtocol},
		{"MAX_FRAME_SIZE too small", setting(http2.SettingMaxFrameSize, 16383), http2.ErrCodeProtocol},
		{"MAX_FRAME_SIZE too big", setting(http2.SettingMaxFrameSize, 1<<24), http2.ErrCodeProtocol},
		{"INITIAL_WINDOW_SIZE too big", setting(http2.SettingInitialWindowSize, 1<<31), http2.ErrCodeFlowControl},
		{"INITIAL_WINDOW_SIZE too big for an open stream", func(w *wire) {
			w.must(w.WriteWindowUpdate(w.open(), 1))
			setting(http2.SettingInitialWindowSize, maxWindow)(w)
		}, http2.ErrCodeFlowControl},
		{"PUSH_PROMISE", raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, 4), http2.ErrCodeProtocol},
		{"PING of a stream", raw(http2.FramePing, 0, 1, 8), http2.ErrCodeProtocol},
		{"PING of a wrong length", raw(http2.FramePing, 0, 0, 7), http2.ErrCodeFrameSize},
		{"GOAWAY of a stream", raw(http2.FrameGoAway, 0, 1, 8), http2.ErrCodeProtocol},
		{"GOAWAY of a wrong length", raw(http2.FrameGoAway, 0, 0, 7), http2.ErrCodeFrameSize},
		{"WINDOW_UPDATE of an idle stream", raw(http2.FrameWindowUpdate, 0, 1, 4), http2.ErrCodeProtocol},
		{"WINDOW_UPDATE of a wrong length", raw(http2.FrameWindowUpdate, 0, 0, 3), http2.ErrCodeFrameSize},
		{"WINDOW_UPDATE of the connection by nothing", raw(http2.FrameWindowUpdate, 0, 0, 4), http2.ErrCodeProtocol},
	} {
		t.Run(tt.why, func(t *testing.T) {
			w := dialWire(t, Options{})
			w.AllowIllegalWrites = true
			tt.do(w)
			w.flush()
			f := w.until(of[*http2.GoAwayFrame]).(*http2.GoAwayFrame)
			if f.ErrCode != tt.code || len(f.DebugData()) == 0 {
				t.Errorf("got %v %q, want %v and why", f.ErrCode, f.DebugData(), tt.code)
			}
		})
	}
}

// DATA behind the end of a request resets the stream. What the policy decided
// stays decided, and the answer that does not get out counts as dropped.
func TestDataOfClosedStream(t *testing.T) {
	for why, after := range map[string]time.Duration{"answered": 0, "to be answered": 3 * time.Second, "to be answered late": time.Hour} {
		t.Run(why, func(t *testing.T) {
			w := dialWire(t, Options{Faults: RouteSet{APNS: Faults{Latency: after}}})
			id := w.push(`{"pf_id":"n1"}`)
			dropped := 1
			if after == 0 {
				w.flush()
				w.until(ended(id))
				dropped = 0
			}
			w.must(w.WriteRawFrame(http2.FrameData, 0, id, []byte("more")))
			w.flush()
			if f := w.until(of[*http2.RSTStreamFrame]).(*http2.RSTStreamFrame); f.StreamID != id || f.ErrCode != http2.ErrCodeStreamClosed {
				t.Errorf("got %v, want STREAM_CLOSED", f)
			}
			if e, _ := w.server.Ledger().Entry("n1", DeviceHash(APNS, goodToken)); e.Refused != 1 || e.Dropped != dropped {
				t.Errorf("got %+v, want it decided once, and %d dropped", e, dropped)
			}
		})
	}
}

// The rest of a request that the server refused is nobody's fault.
func TestRestOfRefusedRequest(t *testing.T) {
	for why, tt := range map[string]struct {
		options Options
		refuse  func(*wire) (id uint32)
	}{
		"over the limit": {
			Options{MaxConcurrentStreams: 1},
			func(w *wire) uint32 { w.open(); return w.open() },
		},
		"malformed": {Options{}, func(w *wire) uint32 { return w.open("te=gzip") }},
		"more than its size": {Options{}, func(w *wire) uint32 {
			id := w.open("content-length=1")
			w.must(w.WriteData(id, false, []byte("{}")))
			return id
		}},
		"too long": {Options{}, func(w *wire) uint32 {
			id := w.open()
			for range bodyLimit/maxFrame + 1 {
				w.must(w.WriteData(id, false, make([]byte, maxFrame)))
			}
			return id
		}},
	} {
		t.Run(why, func(t *testing.T) {
			w := dialWire(t, tt.options)
			w.AllowIllegalWrites = true
			id := tt.refuse(w)
			w.must(w.WriteData(id, false, []byte("{}")))
			w.id, id = id, w.id
			w.begin(true, "a=b") // its trailers, which change the header table
			w.id = id
			w.must(w.WritePing(false, [8]byte{}))
			w.flush()
			resets := 0
			w.until(func(f http2.Frame) bool {
				if of[*http2.GoAwayFrame](f) {
					t.Fatalf("got %v", f)
				}
				if of[*http2.RSTStreamFrame](f) {
					resets++
				}
				return of[*http2.PingFrame](f)
			})
			if resets > 1 {
				t.Errorf("got %d resets, want at most one", resets)
			}
		})
	}
}

// A client that makes the server complain on and on and reads nothing is cut
// off.
func TestComplaintsAreBounded(t *testing.T) {
	c := &frameConn{streams: map[uint32]*stream{}}
	c.last = 1
	c.out.frames = make([]byte, outLimit+1)
	if err := c.strayData(1); err == nil {
		t.Error("it goes on")
	}
}
