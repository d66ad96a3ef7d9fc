package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/pushfleet/pushfleet/providers/sim/wiretest"
)

func TestWireSettings(t *testing.T) {
	w := dialWire(t, &host{streams: 7})
	w.Flush()
	f := w.Until(wiretest.Of[*http2.SettingsFrame]).(*http2.SettingsFrame)
	if n, ok := f.Value(http2.SettingMaxConcurrentStreams); !ok || n != 7 {
		t.Errorf("got MAX_CONCURRENT_STREAMS %d, want 7", n)
	}
	w.Until(func(f http2.Frame) bool {
		return wiretest.Of[*http2.SettingsFrame](f) && f.Header().Flags.Has(http2.FlagSettingsAck)
	})
	w.Must(w.WritePing(false, [8]byte{1, 2, 3}))
	w.Flush()
	if p := w.Until(wiretest.Of[*http2.PingFrame]).(*http2.PingFrame); !p.IsAck() || p.Data != [8]byte{1, 2, 3} {
		t.Errorf("got %v, want the ping back", p)
	}
}

// A window of nothing holds the body of a refusal back until it opens, and
// then lets exactly as much through as there is room for.
func TestWireFlowControl(t *testing.T) {
	w := dialWire(t, &host{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	id := w.Push(`{}`)
	w.Must(w.WritePing(false, [8]byte{}))
	w.Flush()
	w.Until(wiretest.Of[*http2.PingFrame])
	w.Must(w.WriteWindowUpdate(id, 5))
	w.Flush()
	d := w.Until(wiretest.Of[*http2.DataFrame]).(*http2.DataFrame)
	text := string(d.Data())
	if len(text) != 5 || d.StreamEnded() {
		t.Fatalf("got %q, want five bytes of more", text)
	}
	w.Must(w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000}))
	w.Flush()
	d = w.Until(wiretest.Of[*http2.DataFrame]).(*http2.DataFrame)
	if text += string(d.Data()); text != refusal || !d.StreamEnded() {
		t.Errorf("got %q", text)
	}
}

// Header blocks in pieces, padding, priorities, trailers and unknown frames
// are all part of the protocol.
func TestWireForms(t *testing.T) {
	w := dialWire(t, &host{})
	block := bytes.Clone(w.Fields(head...))
	w.Must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:3], PadLength: 9, Priority: http2.PriorityParam{Weight: 3}}))
	w.Must(w.WriteContinuation(1, false, block[3:10]))
	w.Must(w.WriteContinuation(1, true, block[10:]))
	w.Must(w.WriteRawFrame(0xfa, 0, 1, []byte("unknown")))
	w.Must(w.WriteDataPadded(1, false, []byte(`{"pf_id":`), make([]byte, 20)))
	w.Must(w.WriteData(1, false, []byte(`"n1"}`)))
	w.Must(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.Fields("x-trailer=y"), EndHeaders: true, EndStream: true}))
	w.Flush()
	w.Until(wiretest.Ended(1))
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	if got := w.host.received; !slices.Equal(got, []string{`{"pf_id":"n1"}`}) {
		t.Errorf("got %q, want the request to be read whole", got)
	}
}

func TestWireRefusesTooManyStreams(t *testing.T) {
	w := dialWire(t, &host{streams: 2, latency: time.Hour})
	w.Push(`{}`)
	w.Push(`{}`)
	third := w.Push(`{}`)
	w.Flush()
	if f := w.Until(wiretest.Of[*http2.RSTStreamFrame]).(*http2.RSTStreamFrame); f.StreamID != third || f.ErrCode != http2.ErrCodeRefusedStream {
		t.Errorf("got %v, want the third stream refused", f)
	}
	// Resetting a stream makes room.
	w.Must(w.WriteRSTStream(1, http2.ErrCodeCancel))
	w.Push(`{}`)
	w.Must(w.WritePing(false, [8]byte{}))
	w.Flush()
	w.Until(func(f http2.Frame) bool {
		if wiretest.Of[*http2.RSTStreamFrame](f) {
			t.Errorf("got %v after making room", f)
		}
		return wiretest.Of[*http2.PingFrame](f)
	})
}

func TestWireViolations(t *testing.T) {
	for _, tt := range []struct {
		why  string
		do   func(*wire) error
		want http2.ErrCode
	}{
		{"even stream", func(w *wire) error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: w.Fields(head...), EndHeaders: true})
		}, http2.ErrCodeProtocol},
		{"stream backwards", func(w *wire) error {
			w.ID = 5
			w.Push(`{}`)
			w.ID = 3
			w.Push(`{}`)
			return nil
		}, http2.ErrCodeStreamClosed},
		{"frame too long", func(w *wire) error { return w.WriteRawFrame(http2.FrameData, 0, 1, make([]byte, maxFrame+1)) }, http2.ErrCodeFrameSize},
		{"broken HPACK", func(w *wire) error {
			return w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff}, EndHeaders: true})
		}, http2.ErrCodeCompression},
		{"header block interrupted", func(w *wire) error {
			return errors.Join(w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.Fields(head...)}), w.WritePing(false, [8]byte{}))
		}, http2.ErrCodeProtocol},
		{"endless header", func(w *wire) error {
			err := w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: w.Fields(head...)})
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
			w := dialWire(t, &host{})
			w.AllowIllegalWrites = true
			w.Must(tt.do(w))
			w.Flush()
			if f := w.Until(wiretest.Of[*http2.GoAwayFrame]).(*http2.GoAwayFrame); f.ErrCode != tt.want {
				t.Errorf("got %v, want %v", f.ErrCode, tt.want)
			}
		})
	}
}

// Shutdown lets what is in flight be answered, and takes nothing new.
func TestWireShutdown(t *testing.T) {
	w := dialWire(t, &host{latency: 50 * time.Millisecond})
	id := w.Push(`{}`)
	w.Flush()
	for received := 0; received == 0; received, _, _ = w.host.counts() {
		time.Sleep(time.Millisecond)
	}
	done := make(chan error)
	go func() { done <- errors.Join(w.host.engine.Shutdown(context.Background()), w.host.engine.Close()) }()
	if f := w.Until(wiretest.Of[*http2.GoAwayFrame]).(*http2.GoAwayFrame); f.LastStreamID != id || f.ErrCode != http2.ErrCodeNo {
		t.Errorf("got %v, want NO_ERROR after stream %d", f, id)
	}
	w.Until(wiretest.Ended(id))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if f, err := w.ReadFrame(); err == nil {
		t.Errorf("got %v, want the end", f)
	}
}
