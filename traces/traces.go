// Package traces tells an OpenTelemetry collector what sampled notifications went through
// (docs/tracing.md): a span for each record, below the span of its caller, and below it
// one for each thing that took time. Spans are made when a record is over, of the times
// that the pipeline noted: until then a trace costs its times alone.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"go.opentelemetry.io/otel/attribute"

	"github.com/pushfleet/pushfleet/pipeline"
)

// Options are the options of Traces.
type Options struct {
	// Endpoint is the URL of the collector's OTLP/HTTP receiver, with its path:
	// http://collector:4318/v1/traces.
	Endpoint string
	// Ratio is which part of the notifications without a traceparent is sampled, 0 to 1.
	// With one, its sampled flag decides.
	Ratio float64
	// Exporter, unless nil, gets the spans in place of Endpoint.
	Exporter sdktrace.SpanExporter
	Worker   string // name of this process: service.instance.id
	Version  string
	Log      *slog.Logger
}

const (
	// mostOpen bounds the records that are followed at once: some 2 KB each.
	mostOpen = 1000
	// exportEvery, most and exportFor bound what waits for the collector: what is beyond is
	// dropped.
	exportEvery = 2 * time.Second
	mostWaiting = 8192
	exportFor   = 10 * time.Second
)

// Traces implements pipeline.Tracer.
type Traces struct {
	ratio    float64
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	open     atomic.Int64
	over     chan *pipeline.Timeline // capacity mostOpen, so that it takes all that is open; never closed
	end      chan struct{}           // closed by Close
	making   sync.WaitGroup
}

// New makes Traces, which connect to nobody until there is a span. Close ends them.
func New(ctx context.Context, o Options) (*Traces, error) {
	exporter := o.Exporter
	if exporter == nil {
		var err error
		exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.Endpoint), otlptracehttp.WithTimeout(exportFor))
		if err != nil {
			return nil, fmt.Errorf("traces: %w", err)
		}
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(quiet{exporter, o.Log}, sdktrace.WithBatchTimeout(exportEvery), sdktrace.WithMaxQueueSize(mostWaiting), sdktrace.WithExportTimeout(exportFor)),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // Follows has chosen
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "pushfleet"), attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Worker))),
	)
	t := &Traces{ratio: o.Ratio, provider: provider, tracer: provider.Tracer("github.com/pushfleet/pushfleet/traces"), over: make(chan *pipeline.Timeline, mostOpen), end: make(chan struct{})}
	t.making.Go(t.make)
	return t, nil
}

// make makes the spans of what is told, until Close, and then of what was told before it.
func (t *Traces) make() {
	one := func(tl *pipeline.Timeline) {
		t.tell(tl)
		t.open.Add(-1)
	}
	for {
		select {
		case tl := <-t.over:
			one(tl)
		case <-t.end:
			for len(t.over) > 0 {
				one(<-t.over)
			}
			return
		}
	}
}

// Follows implements pipeline.Tracer: it goes by the sampled flag of the record's
// traceparent, or by the ratio where there is none.
func (t *Traces) Follows(it *pipeline.Item) bool {
	sampled, known := false, false
	for i := range it.Trace {
		if it.Trace[i].Key == pipeline.Traceparent {
			sampled, known = isSampled(it.Trace[i].Value)
			break
		}
	}
	if known && !sampled || !known && (t.ratio <= 0 || rand.Float64() >= t.ratio) {
		return false
	}
	if t.open.Add(1) > mostOpen {
		t.open.Add(-1)
		return false
	}
	return true
}

// Told implements pipeline.Tracer. What is told after Close is dropped.
func (t *Traces) Told(tl *pipeline.Timeline) {
	select {
	case t.over <- tl:
	case <-t.end:
	}
}

// Close tells what is left, until ctx ends. It is called once.
func (t *Traces) Close(ctx context.Context) error {
	close(t.end)
	t.making.Wait()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("ending traces: %w", err)
	}
	return nil
}

// quiet logs what an exporter fails at. The SDK would write it to standard error.
type quiet struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

// ExportSpans implements sdktrace.SpanExporter.
func (q quiet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := q.SpanExporter.ExportSpans(ctx, spans); err != nil {
		q.log.Warn("traces are lost: the collector does not take them", "spans", len(spans), "error", err)
	}
	return nil
}
