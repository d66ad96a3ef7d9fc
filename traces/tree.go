package traces

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// tell makes the spans of a record:
//
//	the caller's span
//	└ push.transactional process     from its poll to its commit
//	  ├ wait in Kafka                before its poll
//	  ├ dedupe, accept, …            each stage
//	  ├ dispatch                     each device: the wait for its route
//	  ├ send apns, send fcm          each device: until the provider's answer
//	  ├ row                          each device: until its row is durable, and what was handed over before
//	  └ commit                       until the offset is committed
func (t *Traces) tell(tl *pipeline.Timeline) {
	ctx := context.Background()
	if parent, ok := parse([]byte(tl.Caller)); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	end := latest(tl)
	ctx, root := t.tracer.Start(ctx, tl.Partition.Topic+" process", trace.WithTimestamp(tl.Polled), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.system", "kafka"), attribute.String("messaging.destination.name", tl.Partition.Topic),
		attribute.Int("messaging.destination.partition.id", int(tl.Partition.ID)), attribute.Int64("messaging.kafka.offset", tl.Offset),
		attribute.String("push.id", tl.ID), attribute.String("push.lane", tl.Lane), attribute.String("push.app", tl.App), attribute.String("push.type", tl.Type),
		attribute.Int("push.step", int(tl.Step)), attribute.String("push.outcome", tl.Outcome)))
	if tl.Ended.IsZero() {
		root.AddEvent("left to the next owner of the partition", trace.WithTimestamp(end))
	}
	t.span(ctx, "wait in Kafka", tl.Written, tl.Polled)
	ready := tl.Polled
	for _, p := range tl.Stages {
		t.span(ctx, string(p.Stage), p.From, p.To)
		ready = p.To
	}
	for i := range tl.Sends {
		t.sent(ctx, &tl.Sends[i], ready)
	}
	t.span(ctx, "commit", tl.Ended, tl.Committed)
	root.End(trace.WithTimestamp(end))
}

// sent makes the spans of a delivery that waited for its route since ready.
func (t *Traces) sent(ctx context.Context, s *pipeline.Sent, ready time.Time) {
	about := []attribute.KeyValue{attribute.String("push.app", s.Route.App)}
	if s.Route.Platform != push.NoPlatform {
		about = append(about, attribute.String("push.provider", s.Route.Platform.String()))
	}
	if s.Submitted.IsZero() { // decided without a send
		t.span(ctx, "row", s.Answered, s.Durable, append(about, attribute.String("push.state", s.State), attribute.String("push.reason", s.Reason))...)
		return
	}
	t.span(ctx, "dispatch", ready, s.Submitted, about...)
	_, span := t.tracer.Start(ctx, "send "+s.Route.Platform.String(), trace.WithTimestamp(s.Submitted), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(about...))
	span.SetAttributes(attribute.String("push.state", s.State), attribute.String("push.reason", s.Reason))
	if s.State != push.StateDelivered.String() {
		span.SetStatus(codes.Error, s.Reason)
	}
	span.End(trace.WithTimestamp(s.Answered))
	t.span(ctx, "row", s.Answered, s.Durable, about...)
}

// span makes one span, unless a time is not known.
func (t *Traces) span(ctx context.Context, name string, from, to time.Time, about ...attribute.KeyValue) {
	if from.IsZero() || to.IsZero() {
		return
	}
	if to.Before(from) { // the clocks of two machines
		from = to
	}
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(about...))
	span.End(trace.WithTimestamp(to))
}

// latest is when the last thing of a record was over.
func latest(tl *pipeline.Timeline) time.Time {
	end := tl.Polled
	note := func(at time.Time) {
		if at.After(end) {
			end = at
		}
	}
	for _, p := range tl.Stages {
		note(p.To)
	}
	for i := range tl.Sends {
		note(tl.Sends[i].Durable)
	}
	note(tl.Ended)
	note(tl.Committed)
	return end
}
