//go:build linux

package send

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/apns"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
)

// sendDeadline is how long a push may take: far longer than any answer of a
// simulator that works.
const sendDeadline = time.Minute

// dispatchGroup is how many deliveries are submitted at a time, as in the
// worker.
const dispatchGroup = 256

// oursAPNS drives the client of providers/apns as the worker does: one
// dispatcher takes what waits for the route and submits it, which encodes each
// push from its message, and what is answered comes back in groups on the
// connections' readers, which only put it into the queue.
type oursAPNS struct {
	counts   *tally
	provider pipeline.Provider
	stopping atomic.Bool

	mu      sync.Mutex
	more    sync.Cond
	waiting []*pipeline.Delivery // guarded by mu
	away    int                  // deliveries that the provider has; guarded by mu
}

func driveOursAPNS(ctx context.Context, s *Spec, c *tally) error {
	conf, err := s.tls()
	if err != nil {
		return err
	}
	tokens, err := s.tokens()
	if err != nil {
		return err
	}
	deliveries, err := s.deliveries()
	if err != nil {
		return err
	}
	client, err := apns.New(apns.Options{Topic: s.Topic, Tokens: tokens, Pool: h2.Options{
		URL: s.URL, TLS: conf, Connections: s.Connections, StreamsPerConnection: s.Streams,
		Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 2 * len(deliveries)}},
	}})
	if err != nil {
		return err
	}
	o := &oursAPNS{counts: c, provider: client.Lane(0), waiting: deliveries}
	o.more.L = &o.mu
	defer context.AfterFunc(ctx, o.stop)()
	o.dispatch()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	return client.Close(closing)
}

// deliveries are as many as fit into all streams: each of a notification of its
// own, whose content comes to the payload that every client sends.
func (s *Spec) deliveries() ([]*pipeline.Delivery, error) {
	message, err := messageOf(body)
	if err != nil {
		return nil, err
	}
	message.PushType, message.Priority = pushType, push.High // which is 10
	var all []*pipeline.Delivery
	for _, d := range devices(s.Connections * s.Streams) {
		all = append(all, &pipeline.Delivery{
			Item:    &pipeline.Item{Message: message},
			Device:  pipeline.Device{Token: d.token, Hash: push.DeviceHash(push.APNS, d.token)},
			Route:   push.Route{Platform: push.APNS, Environment: push.Production},
			Expires: push.At(time.Unix(expiration, 0)),
		})
	}
	return all, nil
}

// parts are what body says.
type parts struct {
	APS struct {
		Alert    struct{ Title, Body string }
		Sound    string
		ThreadID string `json:"thread-id"`
	}
	ID string `json:"pf_id"`
}

func readPayload(body string) (p parts, err error) {
	if err = json.Unmarshal([]byte(body), &p); err != nil {
		err = fmt.Errorf("reading the payload: %w", err)
	}
	return p, err
}

// messageOf is the message that becomes a payload.
func messageOf(body string) (push.Message, error) {
	p, err := readPayload(body)
	return push.Message{ID: p.ID, Title: p.APS.Alert.Title, Body: p.APS.Alert.Body, Sound: p.APS.Sound, ThreadID: p.APS.ThreadID}, err
}

// dispatch submits what waits until it is told to stop and all is back.
func (o *oursAPNS) dispatch() {
	group := make([]*pipeline.Delivery, 0, dispatchGroup)
	for {
		if group = o.take(group); len(group) == 0 {
			return
		}
		deadline := pipeline.UptimeAt(time.Now().Add(sendDeadline))
		for _, d := range group {
			d.Result, d.Deadline = push.Result{}, deadline
		}
		// There is always room for all of them.
		if n, err := o.provider.Submit(context.Background(), group, o.done); err != nil {
			o.counts.fail(err)
			o.stopping.Store(true)
			o.landed(nil, len(group)-n)
		}
	}
}

// take waits for deliveries that may be submitted, and returns none once it is
// to stop and the provider has none.
func (o *oursAPNS) take(group []*pipeline.Delivery) []*pipeline.Delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		switch stopping := o.stopping.Load(); {
		case stopping && o.away == 0:
			return nil
		case !stopping && len(o.waiting) > 0:
			n := min(dispatchGroup, len(o.waiting))
			group = append(group[:0], o.waiting[:n]...)
			rest := copy(o.waiting, o.waiting[n:])
			o.waiting = o.waiting[:rest]
			o.away += n
			return group
		}
		o.more.Wait()
	}
}

// done takes what is answered, and lets it wait to be sent again.
func (o *oursAPNS) done(ds []*pipeline.Delivery) {
	now := time.Now()
	answered := 0
	for _, d := range ds {
		if d.Result.Class != push.Delivered {
			o.counts.fail(fmt.Errorf("%v: %s", d.Result.Class, d.Result.Reason))
			o.stopping.Store(true) // the measurement has failed
			continue
		}
		answered++
		o.counts.latencies.add(now.Sub(d.Deadline.Time())+sendDeadline, 1)
	}
	o.counts.answered.Add(int64(answered))
	o.landed(ds, len(ds))
}

// landed notes that n deliveries are back, of which ds may be sent again.
func (o *oursAPNS) landed(ds []*pipeline.Delivery, n int) {
	o.mu.Lock()
	o.waiting = append(o.waiting, ds...)
	o.away -= n
	o.mu.Unlock()
	o.more.Signal()
}

// stop lets dispatch end.
func (o *oursAPNS) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopping.Store(true)
	o.more.Signal()
}
