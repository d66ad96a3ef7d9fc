// Package calls is what a provider needs whatever its side speaks: the checks right
// before a delivery is sent, the results of calls that got no answer, and the words of
// an answer that may be kept. A Caller makes a provider of a function that sends one
// delivery; providers that multiplex HTTP/2 stand on exchange instead.
package calls

import (
	"context"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Send sends one delivery and says what became of it. ctx ends at the delivery's
// deadline. It is called by several goroutines at once.
type Send func(ctx context.Context, d *pipeline.Delivery) push.Result

// Caller is a provider whose side takes one message a call. It bounds how many calls
// are under way, and asks for each delivery's lease and expiry right before its call.
// All methods are safe for concurrent use.
type Caller struct {
	send   Send
	places chan struct{} // one value for each call under way; never closed
	calls  sync.WaitGroup
}

// NewCaller makes a Caller of at most atOnce calls at a time.
func NewCaller(atOnce int, send Send) *Caller {
	return &Caller{send: send, places: make(chan struct{}, atOnce)}
}

// Submit implements pipeline.Provider. It blocks while all places are taken.
func (c *Caller) Submit(ctx context.Context, ds []*pipeline.Delivery, done func([]*pipeline.Delivery)) (int, error) {
	answered := &group{done: done}
	for n, d := range ds {
		if err := ctx.Err(); err != nil { // a free place does not take what comes after the end
			return n, err
		}
		select {
		case c.places <- struct{}{}:
		case <-ctx.Done():
			return n, ctx.Err()
		}
		c.calls.Go(func() {
			d.Result = c.call(d)
			<-c.places
			answered.add(d)
		})
	}
	return len(ds), nil
}

// Wait returns when all calls are over. Nothing may be submitted meanwhile.
func (c *Caller) Wait() { c.calls.Wait() }

// call sends d if it may still be sent. A panic of send ends this call alone: what
// became of the message is unknown.
func (c *Caller) call(d *pipeline.Delivery) (result push.Result) {
	if result, ok := Sendable(d, time.Now()); !ok {
		return result
	}
	defer func() {
		if p := push.Recovered(string(pipeline.StepSend), recover()); p != nil {
			result = Panicked(p)
		}
	}()
	ctx, cancel := context.WithDeadline(context.Background(), d.Deadline.Time())
	defer cancel()
	return c.send(ctx, d)
}

// group hands deliveries to done in groups: those that are answered while one group
// is handed over make the next.
type group struct {
	done func([]*pipeline.Delivery)

	mu      sync.Mutex
	ds      []*pipeline.Delivery // guarded by mu
	handing bool                 // a goroutine is in add, handing over; guarded by mu
}

func (g *group) add(d *pipeline.Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ds = append(g.ds, d)
	if g.handing {
		return
	}
	g.handing = true
	for len(g.ds) > 0 {
		ds := g.ds
		g.ds = nil
		g.mu.Unlock()
		g.done(ds)
		g.mu.Lock()
	}
	g.handing = false
}
