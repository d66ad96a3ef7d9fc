package kafka

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// walled is a way to Kafka whose connections are all reset at one moment. From then on
// nothing answers who connects, as behind a firewall that drops.
type walled struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	mu    sync.Mutex
	wall  bool
	conns []net.Conn
}

func (w *walled) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	wall := w.wall
	w.mu.Unlock()
	if wall {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout) // as net.Dialer does
		defer cancel()
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	c, err := w.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return c, nil
}

func (w *walled) build() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wall = true
	for _, c := range w.conns {
		_ = c.Close() // the client may have closed it
	}
}

// A source is closed while no connection can be made, a while after the last one was lost:
// it does not wait for those that the client tries to make, also if it joins, or has
// something to ask of Kafka.
func TestClosingWhileNothingConnects(t *testing.T) {
	for _, tt := range []struct {
		name    string
		joining bool
		do      func(s *Source, b *pipeline.Batch)
	}{
		{"a member", false, func(*Source, *pipeline.Batch) {}},
		{"a member that joins", true, func(*Source, *pipeline.Batch) {}},
		{"a commit", false, func(_ *Source, b *pipeline.Batch) { done(b) }},
		{"a partition to begin anew", false, func(s *Source, _ *pipeline.Batch) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, a := range s.parts {
				a.tracker.Fence()
				a.lost, a.ended = true, true
				s.beginAnew([]*assignment{a})
			}
			s.signal()
			s.interrupt()
		}},
	} {
		for _, after := range []time.Duration{100 * time.Millisecond, 2 * time.Second, 12 * time.Second} {
			t.Run(tt.name+" "+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					v := newVirtual(t)
					way := &walled{dial: v.network.DialContext}
					s, b := v.joined(way.Dial)
					if tt.joining {
						defer v.rebalance()()
					}
					time.Sleep(4 * time.Second) // of the bubble's time: a heartbeat has been answered
					if s.member.joining() != tt.joining {
						t.Fatalf("setup: joining is %v", !tt.joining)
					}
					way.build()
					tt.do(s, b)
					time.Sleep(after)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					_ = s.Close(ctx) // it could not leave
					if took := time.Since(start); took > 2*time.Second {
						t.Errorf("closed after %v, %v after its time was over", took, took-time.Second)
					}
				})
			})
		}
	}
}
