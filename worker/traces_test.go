package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/traces"
)

// collector keeps the spans that it gets.
type collector struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan // guarded by mu
}

func (c *collector) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, spans...)
	return nil
}

func (c *collector) Shutdown(context.Context) error { return nil }

// A notification whose caller samples its trace is one tree below the caller's span, from
// its poll to its commit, and the tree tells no token, text or user. Others have none.
func TestTraceOfANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := crowded(t, 50, func(c *configs.Config) { c.Lanes[0].Shed = configs.Shed{High: 1, Medium: 1, Low: 1, Bulk: 1} })
		defer n.close()
		const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
		token := strings.Repeat("ab", 32)
		for id, flags := range map[string]string{"sampled": "01", "unsampled": "00"} {
			value := fmt.Sprintf(`{"id":%q,"app":"shop","type":"news","title":"Secret title","device":{"platform":"apns","token":%q,"environment":"production"}}`, id, token)
			r := &kgo.Record{Topic: n.config.Lanes[0].Topic, Key: []byte("secret-user"), Value: []byte(value),
				Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte("00-" + trace + "-" + caller + "-" + flags)}}}
			if err := n.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		var got collector
		tracer, err := traces.New(t.Context(), traces.Options{Exporter: &got, Log: n.options.Log})
		if err != nil {
			t.Fatal(err)
		}
		wrap := n.options.Wrap
		n.options.Wrap = func(o pipeline.Options, stats func(push.Route) h2.Stats) pipeline.Options {
			o.Tracer = tracer
			return wrap(o, stats)
		}
		stop := n.worker()
		time.Sleep(time.Minute)
		stop()
		if err := tracer.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var root sdktrace.ReadOnlySpan
		var names []string
		for _, s := range got.spans {
			names = append(names, s.Name())
			if s.Parent().IsRemote() {
				root = s
			}
		}
		if root == nil || root.Parent().SpanID().String() != caller || root.SpanContext().TraceID().String() != trace {
			t.Fatalf("none of %q is below the caller's span", names)
		}
		for _, s := range got.spans {
			if s != root && s.Parent().SpanID() != root.SpanContext().SpanID() || s.SpanContext().TraceID() != root.SpanContext().TraceID() {
				t.Errorf("%s is not in the tree", s.Name())
			}
			if s != root && s.Name() != "wait in Kafka" && (s.StartTime().Before(root.StartTime()) || s.EndTime().After(root.EndTime())) || s.EndTime().Before(s.StartTime()) {
				t.Errorf("%s from %v to %v is not within %v to %v", s.Name(), s.StartTime(), s.EndTime(), root.StartTime(), root.EndTime())
			}
			if text := fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()); strings.Contains(strings.ToLower(text), "secret") || strings.Contains(text, token) {
				t.Errorf("%s tells a secret: %s", s.Name(), text)
			}
		}
		slices.Sort(names)
		if want := []string{"accept", "commit", "dedupe", "devices", "dispatch", "limits", "preferences", n.config.Lanes[0].Topic + " process", "row", "send apns", "wait in Kafka"}; !slices.Equal(names, want) {
			t.Errorf("spans %q, want %q", names, want)
		}
	})
}
