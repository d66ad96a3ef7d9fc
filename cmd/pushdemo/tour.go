package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/client"
)

// tourTime bounds the one message of a tour.
const tourTime = time.Minute

// invitingMessage is what is sent, or can be, through the gateway of the demo.
func (d *demo) invitingMessage() *client.Message {
	return &client.Message{App: demoApp, ServiceType: "transactional", UserID: d.reachable(), Title: "On its way", Body: "It arrives on Tuesday."}
}

// tour sends one message as other services do, through a gateway, and tells what became of it.
// The gateway ends with it.
func (d *demo) tour(ctx context.Context) error {
	type door struct {
		at  net.Addr
		key string
	}
	open := make(chan door, 1)   // gets one at most, never closed
	ended := make(chan error, 1) // gets one, never closed
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, stop := context.WithTimeoutCause(ctx, tourTime, fmt.Errorf("a message through the gateway did not end within %v", tourTime))
	defer stop()
	serving.Go(func() {
		ended <- d.serve(ctx, "127.0.0.1:0", func(at net.Addr, key string) { open <- door{at, key} })
	})
	select {
	case err := <-ended:
		if err == nil {
			err = cmp.Or(context.Cause(ctx), errors.New("the gateway ended before anything was sent"))
		}
		return err
	case gate := <-open:
		return d.sendOne(ctx, gate.at, gate.key)
	}
}

// sendOne sends a message and waits for its end.
func (d *demo) sendOne(ctx context.Context, at net.Addr, key string) error {
	c, err := client.New(client.Options{URL: "http://" + at.String(), Key: key})
	if err != nil {
		return err
	}
	defer c.Close()
	m := d.invitingMessage()
	body, err := json.Marshal(m)
	if err != nil {
		return err
	}
	began := time.Now()
	accepted, err := c.Send(ctx, m)
	if err != nil {
		return fmt.Errorf("sending through the gateway: %w", err)
	}
	took := time.Since(began)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		r, err := c.Receipt(ctx, accepted.Receipt)
		switch {
		case err != nil:
			return fmt.Errorf("asking for the receipt: %w", err)
		case r.Final && r.Status != "DELIVERED":
			return errors.New("the message through the gateway ended " + r.Status + ": " + r.Meaning)
		case r.Final:
			_, err := fmt.Fprintf(d.stderr, `
One more, through a gateway, as other services send:

  curl http://%s/v1/messages -H 'Authorization: Bearer KEY' -H 'Content-Type: application/json' \
    -d '%s'

It was durable after %v, and its receipt says %s: %s.
With --serve the gateway goes on, for you to try: make demo DEMO='-n 1000 --serve'
`, at, body, took.Round(time.Millisecond), r.Status, r.Meaning)
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
