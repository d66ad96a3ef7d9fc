package traces

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

const sampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// What is no traceparent says nothing of a trace, and no record has a caller by it.
func TestTraceparents(t *testing.T) {
	for _, tt := range []struct {
		text           string
		sampled, known bool
	}{
		{sampled, true, true},
		{strings.TrimSuffix(sampled, "1") + "0", false, true},
		{strings.TrimSuffix(sampled, "01") + "ff", true, true},
		{"cc" + sampled[2:] + "-what-comes-later", true, true},
		{sampled + "-more", false, false},
		{"cc" + sampled[2:] + "more", false, false},
		{"ff" + sampled[2:], false, false},
		{"", false, false},
		{sampled[:54], false, false},
		{strings.ReplaceAll(sampled, "-", "_"), false, false},
		{strings.Replace(sampled, "0af7", "0xf7", 1), false, false},
		{"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", false, false},
		{"00-0af7651916cd43dd8448eb211c80319c-" + strings.Repeat("0", 16) + "-01", false, false},
	} {
		if s, known := isSampled([]byte(tt.text)); s != tt.sampled || known != tt.known {
			t.Errorf("%q: sampled %v, known %v; want %v, %v", tt.text, s, known, tt.sampled, tt.known)
		}
	}
}

func FuzzTraceparent(f *testing.F) {
	f.Add([]byte(sampled))
	f.Add([]byte("cc" + sampled[2:] + "-x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parent, ok := parse(text)
		if ok && (!parent.IsValid() || !strings.Contains(strings.ToLower(string(text)), parent.TraceID().String()+"-"+parent.SpanID().String())) {
			t.Errorf("%q was read as %s-%s", text, parent.TraceID(), parent.SpanID())
		}
	})
}

// exporter counts spans; with an error it takes none.
type exporter struct {
	mu   sync.Mutex
	took int // guarded by mu
	err  error
}

func (e *exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.took += len(spans)
	}
	return e.err
}

func (e *exporter) Shutdown(context.Context) error { return nil }

func item(traceparent string) *pipeline.Item {
	it := &pipeline.Item{}
	if traceparent != "" {
		it.Trace = []pipeline.RecordHeader{{Key: "other"}, {Key: "traceparent", Value: []byte(traceparent)}}
	}
	return it
}

// The caller's flag decides; without a caller the ratio does.
func TestWhoIsFollowed(t *testing.T) {
	for _, tt := range []struct {
		ratio       float64
		traceparent string
		want        bool
	}{
		{0, sampled, true}, {0, "", false}, {1, "", true}, {1, sampled[:54] + "0", false}, {1, "none", true}, {0, "none", false},
	} {
		tr, err := New(t.Context(), Options{Ratio: tt.ratio, Exporter: &exporter{}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := tr.Follows(item(tt.traceparent)); got != tt.want {
			t.Errorf("ratio %v, %q: followed %v, want %v", tt.ratio, tt.traceparent, got, tt.want)
		}
		if err := tr.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// No more than a thousand records are followed at once, and each one that is over makes
// room. A collector that takes nothing holds up nobody.
func TestTracesAreBounded(t *testing.T) {
	for _, lost := range []error{nil, errors.New("away")} {
		synctest.Test(t, func(t *testing.T) {
			var log strings.Builder
			e := &exporter{err: lost}
			tr, err := New(t.Context(), Options{Exporter: e, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			follows := func() (n int) {
				for range 3 * mostOpen {
					if tr.Follows(item(sampled)) {
						n++
					}
				}
				return n
			}
			if got := follows(); got != mostOpen {
				t.Errorf("%d are followed, want %d", got, mostOpen)
			}
			now := time.Now()
			for range mostOpen {
				tr.Told(&pipeline.Timeline{Caller: sampled, Polled: now, Ended: now, Committed: now.Add(time.Second),
					Sends: []pipeline.Sent{{Route: push.Route{Platform: push.FCM}, Submitted: now, Answered: now, Durable: now, State: "DELIVERED"}}})
			}
			synctest.Wait()
			if got := follows(); got != mostOpen {
				t.Errorf("%d are followed after all were over, want %d", got, mostOpen)
			}
			if err := tr.Close(t.Context()); err != nil {
				t.Error(err)
			}
			tr.Told(&pipeline.Timeline{}) // of a lane that ended late: dropped
			if lost == nil && (e.took == 0 || log.Len() > 0) || lost != nil && !strings.Contains(log.String(), "traces are lost") {
				t.Errorf("the collector took %d; log %q", e.took, log.String())
			}
		})
	}
}
