package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// lookEvery is how often it is looked whether a sender has an endpoint by now.
const lookEvery = time.Second

// Deliver returns nil when the sender's endpoint has the event, or when it is a dead
// letter. It returns an error if the event is to be given back, or its dead letter is not
// durable: then it is to be delivered again.
func (d *Deliverer) Deliver(ctx context.Context, e *Event) error {
	if len(e.Value) > MaxEvent || !json.Valid(e.Value) {
		return d.bury(ctx, e, Unreadable, "")
	}
	l, id := d.line(e.Sender), push.WebhookID(e.Sender, e.Value)
	var last *Endpoint      // that it was sent to
	var notBefore time.Time // after a failure others are to have a turn there
	var accepted uint64     // others that the endpoint had taken when this one was last tried
	for failed, refused := 0, 0; ; {
		to, got, err := d.enter(ctx, e, l, last, notBefore)
		switch {
		case err != nil:
			return err
		case to == nil:
			return d.bury(ctx, e, NoEndpoint, "")
		case got == nil:
			return d.bury(ctx, e, Gone, "answered 410 before")
		}
		if last == nil || last.version != to.version { // a former one's refusals say nothing of it
			accepted, refused = got.accepted, 0
		}
		last = to
		began := time.Now()
		a := d.o.Poster.Post(ctx, to, &Call{ID: id, Body: e.Value, At: began})
		if ctx.Err() != nil && !a.Delivered() {
			l.unused(got)
			return ctx.Err()
		}
		d.o.Metrics.called(e.Sender, &a, time.Since(began))
		switch {
		case a.Delivered():
			l.taken(got)
			d.o.Metrics.resting(e.Sender, l.resting())
			return nil
		case a.Status == http.StatusGone:
			l.ends(to)
			d.o.Metrics.resting(e.Sender, true)
			d.o.Log.Error("an endpoint wants no more webhooks: they are dead letters until its URL or secrets change", "sender", e.Sender)
			return d.bury(ctx, e, Gone, a.Word)
		}
		failed++
		asked := a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable
		by := l.fails(got, asked, a.RetryAfter)
		if by > accepted && !asked { // it takes others
			refused++
		}
		accepted = by
		d.o.Metrics.resting(e.Sender, l.resting())
		d.o.Log.Warn("a webhook was not delivered and is repeated", "sender", e.Sender, "webhook", id, "attempt", failed, "what", a.Word)
		switch now := time.Now(); {
		case refused >= refusals:
			return d.bury(ctx, e, Refused, a.Word)
		case now.Sub(e.At) >= d.o.Keep:
			return d.bury(ctx, e, Expired, a.Word)
		default:
			notBefore = now.Add(max(a.RetryAfter, backoff.After(failed)) + time.Second)
		}
	}
}

// enter waits until the event may be sent to the endpoint that its sender has then, not before
// a time if that is the last one again. to is nil if the sender has had none until the event was
// too old, and got if the endpoint wants none.
func (d *Deliverer) enter(ctx context.Context, e *Event, l *line, last *Endpoint, notBefore time.Time) (to *Endpoint, got *leave, err error) {
	for {
		if to, err = d.endpoint(ctx, e); to == nil {
			return nil, nil, err
		}
		if last != nil && last.version != to.version {
			notBefore = time.Time{}
		}
		got, gone, wait, moved := l.enter(to, notBefore)
		if got != nil || gone {
			return to, got, nil
		}
		if wait <= 0 || wait > lookEvery { // there may be another endpoint by then
			wait = lookEvery
		}
		if err := await(ctx, e.Leaving, moved, wait); err != nil {
			return nil, nil, err
		}
	}
}

// endpoint waits until the sender has one; nil = it has had none until the event was too
// old.
func (d *Deliverer) endpoint(ctx context.Context, e *Event) (*Endpoint, error) {
	for {
		if to := d.o.Endpoints.Of(e.Sender); to != nil {
			return to, nil
		}
		if time.Since(e.At) >= d.o.Keep {
			return nil, nil
		}
		if err := await(ctx, e.Leaving, nil, lookEvery); err != nil {
			return nil, err
		}
	}
}

// bury makes the event a dead letter.
func (d *Deliverer) bury(ctx context.Context, e *Event, why Reason, detail string) error {
	if err := d.o.Dead.Bury(ctx, e, why, detail); err != nil {
		return fmt.Errorf("keeping a webhook that was not delivered: %w", err)
	}
	d.o.Metrics.buried(e.Sender, why)
	d.o.Log.Error("a webhook is a dead letter", "sender", e.Sender, "webhook", push.WebhookID(e.Sender, e.Value), "reason", why, "what", detail)
	return nil
}
