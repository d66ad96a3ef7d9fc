package engine

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

// complaint is how the server reacts to what a client does against HTTP/2.
type complaint struct {
	why  string
	do   func(*wire)
	code http2.ErrCode
}

// A request that breaks a rule is reset and never decided, and the connection
// serves the next one.
func TestStreamErrors(t *testing.T) {
	body := func(w *wire, id uint32, end bool, text string) { w.Must(w.WriteData(id, end, []byte(text))) }
	header := func(list ...string) func(*wire) {
		return func(w *wire) { body(w, w.Begin(false, list...), true, `{"pf_id":"n1"}`) }
	}
	for _, tt := range []complaint{
		{"upper case", header(append(head, "X-Name=y")...), http2.ErrCodeProtocol},
		{"upper case, indexed", func(w *wire) {
			header(append(head, "X-Name=y")...)(w)
			header(append(head, "X-Name=y")...)(w)
			w.Flush()
			w.Until(wiretest.Of[*http2.RSTStreamFrame])
		}, http2.ErrCodeProtocol},
		{"empty name", header(append(head, "=y")...), http2.ErrCodeProtocol},
		{"space in a name", header(append(head, "a b=y")...), http2.ErrCodeProtocol},
		{"unknown pseudo-header", header(append([]string{":x=y"}, head...)...), http2.ErrCodeProtocol},
		{"pseudo-header of responses", header(append([]string{":status=200"}, head...)...), http2.ErrCodeProtocol},
		{"repeated :method", header(append([]string{":method=POST"}, head...)...), http2.ErrCodeProtocol},
		{"repeated :scheme", header(append([]string{":scheme=https"}, head...)...), http2.ErrCodeProtocol},
		{"repeated :path", header(append([]string{":path=/"}, head...)...), http2.ErrCodeProtocol},
		{"repeated :authority", header(append([]string{":authority=x"}, head...)...), http2.ErrCodeProtocol},
		{"late pseudo-header", header(":method=POST", ":scheme=https", "a=b", ":path=/3/device/x"), http2.ErrCodeProtocol},
		{"no :method", header(head[1:]...), http2.ErrCodeProtocol},
		{"no :scheme", header(":method=POST", ":path=/3/device/x"), http2.ErrCodeProtocol},
		{"no :path", header(head[:3]...), http2.ErrCodeProtocol},
		{"empty :path", header(":method=POST", ":scheme=https", ":path="), http2.ErrCodeProtocol},
		{"connection", header(append(head, "connection=close")...), http2.ErrCodeProtocol},
		{"keep-alive", header(append(head, "keep-alive=1")...), http2.ErrCodeProtocol},
		{"proxy-connection", header(append(head, "proxy-connection=close")...), http2.ErrCodeProtocol},
		{"transfer-encoding", header(append(head, "transfer-encoding=chunked")...), http2.ErrCodeProtocol},
		{"upgrade", header(append(head, "upgrade=h2")...), http2.ErrCodeProtocol},
		{"te", header(append(head, "te=gzip")...), http2.ErrCodeProtocol},
		{"malformed without a body", func(w *wire) { w.Begin(true, append(head, "te=gzip")...) }, http2.ErrCodeProtocol},

		{"body longer than content-length", func(w *wire) { body(w, w.Open("content-length=1"), true, `{}`) }, http2.ErrCodeProtocol},
		{"body longer, and not at its end", func(w *wire) { body(w, w.Open("content-length=1"), false, `{}`) }, http2.ErrCodeProtocol},
		{"body shorter than content-length", func(w *wire) { body(w, w.Open("content-length=3"), true, `{}`) }, http2.ErrCodeProtocol},
		{"body shorter, with trailers", func(w *wire) {
			id := w.Open("content-length=3")
			body(w, id, false, `{}`)
			w.ID = id
			w.Begin(true, "a=b")
		}, http2.ErrCodeProtocol},
		{"no body for a content-length", func(w *wire) { w.Begin(true, append(head, "content-length=3")...) }, http2.ErrCodeProtocol},
		{"content-length that is no number", func(w *wire) { w.Open("content-length=+2") }, http2.ErrCodeProtocol},
		{"two content-lengths", func(w *wire) { w.Open("content-length=2", "content-length=3") }, http2.ErrCodeProtocol},

		{"pseudo-header in trailers", func(w *wire) { w.ID = w.Open(); w.Begin(true, ":method=POST") }, http2.ErrCodeProtocol},
		{"connection in trailers", func(w *wire) { w.ID = w.Open(); w.Begin(true, "connection=close") }, http2.ErrCodeProtocol},
		{"trailers that end nothing", func(w *wire) { w.ID = w.Open(); w.Begin(false, "a=b") }, http2.ErrCodeProtocol},

		{"HEADERS that depend on themselves", func(w *wire) {
			p := http2.PriorityParam{StreamDep: w.ID, Weight: 1}
			w.Must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: w.ID, BlockFragment: w.Fields(head...), EndHeaders: true, EndStream: true, Priority: p}))
			w.ID += 2
		}, http2.ErrCodeProtocol},
		{"PRIORITY that depends on itself", func(w *wire) { id := w.Open(); w.Must(w.WritePriority(id, http2.PriorityParam{StreamDep: id})) }, http2.ErrCodeProtocol},
		{"PRIORITY of a wrong length", func(w *wire) { w.Must(w.WriteRawFrame(http2.FramePriority, 0, w.Open(), make([]byte, 4))) }, http2.ErrCodeFrameSize},

		{"window update by nothing", func(w *wire) { w.Must(w.WriteWindowUpdate(w.Open(), 0)) }, http2.ErrCodeProtocol},
		{"window overflow", func(w *wire) { w.Must(w.WriteWindowUpdate(w.Open(), maxWindow)) }, http2.ErrCodeFlowControl},
	} {
		t.Run(tt.why, func(t *testing.T) {
			w := dialWire(t, &host{})
			w.AllowIllegalWrites = true
			tt.do(w)
			w.Flush()
			if f := w.Until(wiretest.Of[*http2.RSTStreamFrame]).(*http2.RSTStreamFrame); f.StreamID != w.ID-2 || f.ErrCode != tt.code {
				t.Errorf("got %v, want %v for stream %d", f, tt.code, w.ID-2)
			}
			received, _, complaints := w.host.counts()
			if received != 0 {
				t.Errorf("%d requests were received, want none", received)
			}
			if len(complaints) == 0 || !strings.HasPrefix(complaints[0], tt.code.String()) {
				t.Errorf("got %q, want the complaint", complaints)
			}
			next := w.Push(`{}`)
			w.Flush()
			w.Until(wiretest.Ended(next))
		})
	}
}

// What no stream can be blamed for, or what shows that the client's idea of
// its streams is wrong, ends the connection.
func TestConnectionErrors(t *testing.T) {
	raw := func(kind http2.FrameType, flags http2.Flags, stream uint32, length int) func(*wire) {
		return func(w *wire) { w.Must(w.WriteRawFrame(kind, flags, stream, make([]byte, length))) }
	}
	setting := func(id http2.SettingID, value uint32) func(*wire) {
		return func(w *wire) { w.Must(w.WriteSettings(http2.Setting{ID: id, Val: value})) }
	}
	for _, tt := range []complaint{
		{"DATA of no stream", raw(http2.FrameData, 0, 0, 4), http2.ErrCodeProtocol},
		{"DATA of an idle stream", raw(http2.FrameData, 0, 1, 4), http2.ErrCodeProtocol},
		{"DATA of the server's stream", raw(http2.FrameData, 0, 2, 4), http2.ErrCodeProtocol},
		{"HEADERS of no stream", raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 0, 0), http2.ErrCodeProtocol},
		{"HEADERS of no stream, to be continued", raw(http2.FrameHeaders, 0, 0, 0), http2.ErrCodeProtocol},
		{"HEADERS without their priority", raw(http2.FrameHeaders, http2.FlagHeadersPriority, 1, 4), http2.ErrCodeFrameSize},
		{"HEADERS of a complete request", func(w *wire) { w.ID = w.Push(`{}`); w.Open() }, http2.ErrCodeStreamClosed},
		{"CONTINUATION of nothing", raw(http2.FrameContinuation, 0, 1, 4), http2.ErrCodeProtocol},
		{"CONTINUATION of a complete header", func(w *wire) { raw(http2.FrameContinuation, 0, w.Open(), 4)(w) }, http2.ErrCodeProtocol},
		{"PRIORITY of no stream", raw(http2.FramePriority, 0, 0, 5), http2.ErrCodeProtocol},
		{"PRIORITY of an idle stream on itself", func(w *wire) { w.Must(w.WritePriority(9, http2.PriorityParam{StreamDep: 9})) }, http2.ErrCodeProtocol},
		{"RST_STREAM of no stream", raw(http2.FrameRSTStream, 0, 0, 4), http2.ErrCodeProtocol},
		{"RST_STREAM of an idle stream", raw(http2.FrameRSTStream, 0, 1, 4), http2.ErrCodeProtocol},
		{"RST_STREAM of a wrong length", func(w *wire) { raw(http2.FrameRSTStream, 0, w.Open(), 5)(w) }, http2.ErrCodeFrameSize},
		{"SETTINGS of a stream", raw(http2.FrameSettings, 0, 1, 6), http2.ErrCodeProtocol},
		{"SETTINGS of a wrong length", raw(http2.FrameSettings, 0, 0, 5), http2.ErrCodeFrameSize},
		{"SETTINGS that acknowledge something", raw(http2.FrameSettings, http2.FlagSettingsAck, 0, 6), http2.ErrCodeFrameSize},
		{"ENABLE_PUSH of 2", setting(http2.SettingEnablePush, 2), http2.ErrCodeProtocol},
		{"MAX_FRAME_SIZE too small", setting(http2.SettingMaxFrameSize, 16383), http2.ErrCodeProtocol},
		{"MAX_FRAME_SIZE too big", setting(http2.SettingMaxFrameSize, 1<<24), http2.ErrCodeProtocol},
		{"INITIAL_WINDOW_SIZE too big", setting(http2.SettingInitialWindowSize, 1<<31), http2.ErrCodeFlowControl},
		{"INITIAL_WINDOW_SIZE too big for an open stream", func(w *wire) {
			w.Must(w.WriteWindowUpdate(w.Open(), 1))
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
			w := dialWire(t, &host{})
			w.AllowIllegalWrites = true
			tt.do(w)
			w.Flush()
			f := w.Until(wiretest.Of[*http2.GoAwayFrame]).(*http2.GoAwayFrame)
			if f.ErrCode != tt.code || len(f.DebugData()) == 0 {
				t.Errorf("got %v %q, want %v and why", f.ErrCode, f.DebugData(), tt.code)
			}
		})
	}
}

// DATA behind the end of a request resets the stream. What the session decided
// stays decided, and the answer that does not get out counts as dropped.
func TestDataOfClosedStream(t *testing.T) {
	for why, after := range map[string]time.Duration{"answered": 0, "to be answered": 3 * time.Second, "to be answered late": time.Hour} {
		t.Run(why, func(t *testing.T) {
			w := dialWire(t, &host{latency: after})
			id := w.Push(`{"pf_id":"n1"}`)
			dropped := 1
			if after == 0 {
				w.Flush()
				w.Until(wiretest.Ended(id))
				dropped = 0
			}
			w.Must(w.WriteRawFrame(http2.FrameData, 0, id, []byte("more")))
			w.Flush()
			if f := w.Until(wiretest.Of[*http2.RSTStreamFrame]).(*http2.RSTStreamFrame); f.StreamID != id || f.ErrCode != http2.ErrCodeStreamClosed {
				t.Errorf("got %v, want STREAM_CLOSED", f)
			}
			if got, lost, _ := w.host.counts(); got != 1 || lost != dropped {
				t.Errorf("%d decided and %d dropped, want it decided once, and %d dropped", got, lost, dropped)
			}
		})
	}
}

// The rest of a request that the server refused is nobody's fault.
func TestRestOfRefusedRequest(t *testing.T) {
	for why, tt := range map[string]struct {
		host   *host
		refuse func(*wire) (id uint32)
	}{
		"over the limit": {
			&host{streams: 1},
			func(w *wire) uint32 { w.Open(); return w.Open() },
		},
		"malformed": {&host{}, func(w *wire) uint32 { return w.Open("te=gzip") }},
		"more than its size": {&host{}, func(w *wire) uint32 {
			id := w.Open("content-length=1")
			w.Must(w.WriteData(id, false, []byte("{}")))
			return id
		}},
		"too long": {&host{}, func(w *wire) uint32 {
			id := w.Open()
			for range bodyLimit/maxFrame + 1 {
				w.Must(w.WriteData(id, false, make([]byte, maxFrame)))
			}
			return id
		}},
	} {
		t.Run(why, func(t *testing.T) {
			w := dialWire(t, tt.host)
			w.AllowIllegalWrites = true
			id := tt.refuse(w)
			w.Must(w.WriteData(id, false, []byte("{}")))
			w.ID, id = id, w.ID
			w.Begin(true, "a=b") // its trailers, which change the header table
			w.ID = id
			w.Must(w.WritePing(false, [8]byte{}))
			w.Flush()
			resets := 0
			w.Until(func(f http2.Frame) bool {
				if wiretest.Of[*http2.GoAwayFrame](f) {
					t.Fatalf("got %v", f)
				}
				if wiretest.Of[*http2.RSTStreamFrame](f) {
					resets++
				}
				return wiretest.Of[*http2.PingFrame](f)
			})
			if resets > 1 {
				t.Errorf("got %d resets, want at most one", resets)
			}
		})
	}
}

// A client that makes the server complain on and on and reads nothing is cut
// off, and its stream is not counted as open any more.
func TestComplaintsAreBounded(t *testing.T) {
	c := &Conn{streams: map[uint32]*stream{1: {id: 1}}, last: 3, open: 1, limit: 1}
	c.out.frames = make([]byte, outLimit+1)
	if err := c.breach(1, http2.ErrCodeProtocol, "a complaint"); err == nil {
		t.Error("it goes on after a complaint of an open stream")
	}
	c.account(t)
	if err := c.strayData(3); err == nil {
		t.Error("it goes on after a complaint of a closed stream")
	}
}
