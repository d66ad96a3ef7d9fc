package embedded

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Redis is an in-process Redis with the BF.* commands. Keys expire by the
// clock. All methods are safe for concurrent use.
//
// The Miniredis is there for tests that look inside (Keys, FlushAll,
// SetError); stop and start it through Redis, which also owns the filters.
type Redis struct {
	Mini *miniredis.Miniredis

	filters filters
	relays  sync.WaitGroup // goroutines of dialled connections

	mu      sync.Mutex
	pipe    bool
	running bool
	stop    chan struct{} // ends the clock; closed by Close
	clock   sync.WaitGroup
}

// tick is how often keys expire. Miniredis can look at its clock by itself, but
// then every command walks and sorts all keys: right where time is virtual and
// jumps by hours, too slow for the demo.
const tick = 500 * time.Millisecond

// restOf is how long the clock rests after a walk over all keys, in times of what it
// took. No command is answered meanwhile: some 300,000 keys take longer than a tick,
// and would leave no time for anything else. They expire later then, and sooner if they
// were set in between: a walk takes the time since the last one off every key.
const restOf = 19

// StartRedis starts a server on a free port of 127.0.0.1. Stop it with Close.
func StartRedis() (*Redis, error) { return startRedis(false) }

// StartPipeRedis starts a server without a socket: connections come from Dial
// alone. It is for testing/synctest, where real sockets stop the clock.
func StartPipeRedis() (*Redis, error) { return startRedis(true) }

func startRedis(pipe bool) (*Redis, error) {
	r := &Redis{Mini: miniredis.NewMiniRedis(), pipe: pipe}
	r.Mini.ClockTTL(pipe)
	if err := r.Restart(); err != nil {
		return nil, err
	}
	return r, nil
}

// Restart starts a closed server again, on the port and with the keys it had.
func (r *Redis) Restart() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		return nil
	}
	if r.pipe {
		// The first dial makes the server; this connection has no other use.
		conn, err := r.Mini.Dial()
		if err != nil {
			return fmt.Errorf("starting embedded redis: %w", err)
		}
		if err := conn.Close(); err != nil {
			return fmt.Errorf("starting embedded redis: %w", err)
		}
	} else if err := r.Mini.Restart(); err != nil {
		return fmt.Errorf("starting embedded redis: %w", err)
	}
	r.running = true
	r.stop = make(chan struct{})
	if !r.pipe {
		stop := r.stop
		r.clock.Go(func() { expire(stop, r.Mini.FastForward) })
	}
	if err := r.filters.register(r.Mini.Server()); err != nil {
		return fmt.Errorf("starting embedded redis: %w", err)
	}
	return nil
}

// expire moves the keys' remaining times along until stop is closed. forward does it for
// all of them.
func expire(stop <-chan struct{}, forward func(time.Duration)) {
	last, rest := time.Now(), tick
	for {
		select {
		case <-stop:
			return
		case <-time.After(rest):
			now := time.Now()
			forward(now.Sub(last))
			last, rest = now, max(tick, restOf*time.Since(now))
		}
	}
}

// Addr is the server's host:port; a name that means nothing for one without a
// socket.
func (r *Redis) Addr() string {
	if r.pipe {
		return "embedded:6379"
	}
	return r.Mini.Addr()
}

// Dial opens a connection inside the process, whatever the address: the Dialer
// of a client. After Close it fails as a server that is away does.
func (r *Redis) Dial(_ context.Context, _, _ string) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	}
	conn, err := r.Mini.Dial()
	if err != nil {
		return nil, err
	}
	return connect(conn, &r.relays), nil
}

// Wipe removes everything, as a server that lost its memory; keys and filters.
func (r *Redis) Wipe() {
	r.Mini.FlushAll()
	r.filters.sweep(r.Mini)
}

// Close ends all connections and returns when the server's goroutines are
// gone. Keys stay for a Restart. It may be called twice.
func (r *Redis) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running {
		close(r.stop)
		r.clock.Wait()
	}
	r.running = false
	r.Mini.Close()
	r.relays.Wait()
}
