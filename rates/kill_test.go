package rates

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
)

// line is a worker's connections to Redis, which can be cut for good.
type line struct {
	redis *embedded.Redis

	mu    sync.Mutex // guards all below
	cut   bool
	conns []net.Conn
}

// Dial is the Dialer of the worker's client.
func (l *line) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.New("the worker is dead")
	}
	c, err := l.redis.Dial(ctx, network, addr)
	if err == nil {
		l.conns = append(l.conns, c)
	}
	return c, err
}

// kill ends a worker as a signal 9 does, whatever it was about: it sends no more, and gives
// nothing up.
func (w *worker) kill() {
	w.line.mu.Lock()
	w.line.cut = true
	for _, c := range w.line.conns {
		_ = c.Close()
	}
	w.line.mu.Unlock()
	w.mu.Lock()
	w.dead = true
	w.mu.Unlock()
	w.stop()
	w.ended.Wait()
}

// ends reports whether the worker sends no more.
func (w *worker) ends() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead || w.ctx.Err() != nil
}

// A worker that is killed while it has a chunk takes no more than that with it: from then on
// the others send all of the rate but one chunk, long before it is known that it is not there
// any more. The fleet is never over the rate and one chunk for each worker.
func TestAKilledWorkerTakesNoMoreThanItsChunk(t *testing.T) {
	const perSecond = 500
	for _, tt := range []struct {
		why   string
		base  float64
		limit float64
		send  func(w *worker)
	}{
		{"a route's rate", perSecond, 0, func(w *worker) { w.send(false, perSecond); w.send(true, perSecond/20) }},
		{"the fleet's limit", 0, perSecond, func(w *worker) {
			w.push(promotional, perSecond, 1)
			w.push(transactional, perSecond/4, 1)
			w.push(critical, perSecond/20, 1)
		}},
	} {
		t.Run(tt.why, func(t *testing.T) {
			inFleet(t, tt.base, 0, func(f *fleet) {
				f.limit = tt.limit
				for range 4 {
					tt.send(f.join())
				}
				time.Sleep(3 * time.Second)
				for i := range 6 { // at another moment of the chunk each time
					time.Sleep(2*time.Second + time.Duration(i)*every/3)
					f.workers[i].kill()
					died := time.Since(f.started)
					const long = 2 * time.Second
					time.Sleep(long)
					left, _ := f.between(died, died+long)
					if least := perSecond * (long - ahead).Seconds() * 0.97; float64(left) < least {
						t.Errorf("kill %d: %d sends within %v, want at least %v", i, left, long, least)
					}
					tt.send(f.join())
				}
				for _, long := range []time.Duration{ahead, time.Second, 5 * time.Second, 20 * time.Second} {
					if got, most := f.densest(long, -1), perSecond*(long+2*ahead).Seconds(); float64(got) > most {
						t.Errorf("%d sends within %v, want at most %v", got, long, most)
					}
				}
			})
		})
	}
}
