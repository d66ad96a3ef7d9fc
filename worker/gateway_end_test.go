package worker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// cable is the way of a process to a server, which can be cut. It is safe for concurrent use.
type cable struct {
	to   string // its address
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu    sync.Mutex
	cut   func(ctx context.Context) error // guarded by mu; nil = it is whole; else what becomes of who dials
	conns []net.Conn                      // guarded by mu
	mute  chan struct{}                   // guarded by mu; closed when what is connected hears nothing any more
}

// muted is a connection whose peer is gone without a word.
type muted struct {
	net.Conn
	mute <-chan struct{}
}

func (c muted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.mute:
		for err == nil {
			_, err = c.Conn.Read(b)
		}
		return 0, err
	default:
		return n, err
	}
}

func (c *cable) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	if address != c.to {
		return c.dial(ctx, network, address)
	}
	if cut != nil {
		return nil, cut(ctx)
	}
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns = append(c.conns, conn)
	return muted{conn, c.mute}, nil
}

// refuse ends what is connected, and refuses what comes.
func (c *cable) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = func(context.Context) error { return errors.New("connection refused") }
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// silence answers nothing any more.
func (c *cable) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.mute)
	c.cut = func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
}

// A gateway is told to end while Kafka is away, with messages that nobody has confirmed: its
// drain is all that it takes.
func TestAGatewayEndsWithoutKafka(t *testing.T) {
	for name, cut := range map[string]func(*cable){"refused": (*cable).refuse, "silent": (*cable).silence} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := fleetWithGateway(t)
				defer n.close()
				way := &cable{to: n.cluster.ListenAddrs()[0], mute: make(chan struct{})}
				client, stop := n.startGateway(func(o *GatewayOptions) {
					way.dial, o.Dial = o.Dial, way.Dial
				})
				time.Sleep(time.Minute)
				if a, err := call(t, client, "POST", "http://gateway/v1/messages", toTheOwl); err != nil || a.status != http.StatusAccepted {
					t.Fatalf("%v %+v", err, a)
				}
				cut(way)
				var sending sync.WaitGroup
				defer sending.Wait()
				for range 3 {
					sending.Go(func() {
						if a, err := call(t, client, "POST", "http://gateway/v1/messages", toTheOwl); err != nil || a.status != http.StatusServiceUnavailable {
							t.Errorf("%v %+v", err, a)
						}
					})
				}
				time.Sleep(3 * time.Second)
				start := time.Now()
				stop()
				if took := time.Since(start); took > n.config.Gateway.Drain+time.Second/2 {
					t.Errorf("it took %v, with a drain of %v", took, n.config.Gateway.Drain)
				}
			})
		})
	}
}
