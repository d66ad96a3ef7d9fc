//go:build linux

package send

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/providers/h2"
)

// closeTime is how long what is under way may take at the end.
const closeTime = 15 * time.Second

// ours drives the multiplexer through its asynchronous interface: what is
// answered is handed over again, in the groups in which it comes.
type ours struct {
	counts   *tally
	pool     *h2.Pool
	group    *h2.Group
	stopping atomic.Bool
	away     atomic.Int64 // requests that the pool has
	home     chan struct{}
}

// flight is the Tag of a request: when it was handed over.
type flight struct{ since time.Time }

func driveOurs(ctx context.Context, s *Spec, c *tally) error {
	conf, err := s.tls()
	if err != nil {
		return err
	}
	requests, err := s.requests()
	if err != nil {
		return err
	}
	pool, err := h2.NewPool(h2.Options{
		URL: s.URL, TLS: conf, Connections: s.Connections, StreamsPerConnection: s.Streams,
		Lanes: []h2.Lane{{Name: "only", Weight: 1, Queue: 2 * len(requests)}}, AnswerHeaders: []string{"apns-id"},
	})
	if err != nil {
		return err
	}
	o := &ours{counts: c, pool: pool, home: make(chan struct{})}
	o.group = h2.NewGroup(o.done)
	o.away.Store(int64(len(requests)))
	o.submit(requests)
	<-ctx.Done()
	o.stopping.Store(true)
	<-o.home // every request has a deadline
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
	defer cancel()
	return pool.Close(closing)
}

// requests are as many as fit into all streams.
func (s *Spec) requests() ([]*h2.Request, error) {
	auth, err := s.authorization()
	if err != nil {
		return nil, err
	}
	stable := []h2.Field{
		{Name: "authorization", Value: []byte(auth)},
		{Name: "apns-topic", Value: []byte(s.Topic)},
		{Name: "apns-push-type", Value: []byte(pushType)},
		{Name: "apns-priority", Value: []byte(strconv.Itoa(priority))},
		{Name: "apns-expiration", Value: []byte(strconv.Itoa(expiration)), Indexing: h2.NotIndexed},
	}
	payload := []byte(body)
	var all []*h2.Request
	for _, d := range devices(s.Connections * s.Streams) {
		header := append(make([]h2.Field, 0, len(stable)+1), stable...)
		all = append(all, &h2.Request{
			Path: []byte(devicePath + d.token), Body: payload, Tag: new(flight),
			Header: append(header, h2.Field{Name: "apns-id", Value: []byte(d.id), Indexing: h2.NotIndexed}),
		})
	}
	return all, nil
}

// submit hands requests over. There is always room for all of them.
func (o *ours) submit(rs []*h2.Request) {
	now := time.Now()
	for _, r := range rs {
		r.Tag.(*flight).since = now
	}
	n, err := o.pool.SubmitTo(context.Background(), 0, rs, o.group)
	if err != nil {
		o.counts.fail(err)
		o.landed(len(rs) - n)
	}
}

func (o *ours) landed(n int) {
	if o.away.Add(-int64(n)) == 0 {
		close(o.home)
	}
}

// done takes what is answered, and hands it over again.
func (o *ours) done(rs []*h2.Request) {
	now := time.Now()
	answered := 0
	for _, r := range rs {
		if r.Outcome != h2.Answered || r.Answer.Status != 200 {
			o.counts.fail(fmt.Errorf("%v, status %d: %w", r.Outcome, r.Answer.Status, r.Err))
			o.stopping.Store(true) // the measurement has failed
			continue
		}
		answered++
		o.counts.latencies.add(now.Sub(r.Tag.(*flight).since), 1)
	}
	o.counts.answered.Add(int64(answered))
	if o.stopping.Load() {
		o.landed(len(rs))
		return
	}
	o.submit(rs)
}
