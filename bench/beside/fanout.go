//go:build linux

package beside

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
)

// fanoutBody is what is sent to all subscribers.
const fanoutBody = `{"title":"Snow until Sunday","body":"Up to 40 cm above 1,200 m, and fresh tracks on all of the slopes that are open."}`

// fanout is a message to all subscribers that is under way.
type fanout struct {
	w        *world
	o        *Options
	audience *fleet.Audience
	receipt  string
	began    time.Time

	emitted int
	ended   time.Time // of emitting; zero = it goes on
	unknown error     // why the gateway did not say how far it is, when it was asked last
	pushed  int
}

// subscribe makes the topic, and all users but the receivers its subscribers.
func (w *world) subscribe(ctx context.Context, o *Options) (*fleet.Audience, error) {
	o.Progress("writing %d subscribers", o.Subscribers)
	a := &fleet.Audience{Name: "everybody", Service: fanoutLane, Caller: crew, Address: w.address}
	if o.SameLane {
		a.Service = messageLane
	}
	if err := a.Make(ctx, w.working[0]); err != nil {
		return nil, err
	}
	return a, w.Subscribe(ctx, a.Name, o.Subscribers, func(i int) string { return w.people.User(receivers + i).ID })
}

// begin sends the message.
func (f *fanout) begin(ctx context.Context) (err error) {
	f.began = time.Now()
	f.receipt, err = f.audience.Send(ctx, fanoutBody)
	return err
}

// How often it is looked at, how often that is told, and after how long without a push it counts as stuck.
const (
	lookPause = 200 * time.Millisecond
	sayEvery  = 5 * time.Second
	patience  = 2 * time.Minute
)

// follow returns when all is emitted and pushed, or Options.Seconds are over.
func (f *fanout) follow(ctx context.Context) error {
	ticker := time.NewTicker(lookPause)
	defer ticker.Stop()
	said, grown := time.Now(), time.Now()
	for {
		before := f.pushed
		if err := f.look(ctx); err != nil {
			return err
		}
		if f.pushed > before {
			grown = time.Now()
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			f.o.Progress("  %d emitted, %d pushed", f.emitted, f.pushed)
		}
		switch {
		case f.done() || f.o.Seconds > 0 && time.Since(f.began) >= seconds(f.o.Seconds):
			return nil
		case time.Since(grown) >= patience:
			return fmt.Errorf("nothing was pushed for %v: %d of %d were, %d are emitted (%v)%s", patience, f.pushed, f.o.Subscribers, f.emitted, f.unknown, f.w.Logs())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func (f *fanout) done() bool { return !f.ended.IsZero() && f.pushed >= f.o.Subscribers }

// look asks how far it is.
func (f *fanout) look(ctx context.Context) (err error) {
	if err := f.w.ended(); err != nil {
		return err
	}
	if err := f.askGateway(ctx); err != nil {
		return err
	}
	f.pushed, err = f.w.sim.Others(ctx) // receivers are written down, and nobody else has got one before
	return err
}

// askGateway asks for the receipt until it is final. Without an answer, as Cassandra is slow, it goes on.
func (f *fanout) askGateway(ctx context.Context) error {
	if !f.ended.IsZero() {
		return nil
	}
	p, err := f.audience.Progress(ctx, f.receipt)
	if f.unknown = err; err != nil {
		return context.Cause(ctx)
	}
	if f.emitted = p.Fanout.Emitted; !p.Final {
		return nil
	}
	f.ended = time.Now()
	return p.All(f.o.Subscribers)
}
