package status_test

import (
	"context"
	"flag"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
)

// outageLength can be extended by hand: -args -outage=3m.
var outageLength = flag.Duration("outage", 4*time.Second, "how long each outage of TestOutages lasts")

// cutter is a proxy in front of a server: its connections can be cut, or stay
// open and carry nothing.
type cutter struct {
	listener net.Listener
	to       string
	mute     atomic.Bool
	owned    sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func cut(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, to: to, conns: map[net.Conn]bool{}}
	c.owned.Go(c.accept)
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		c.owned.Wait()
	})
	return c
}

func (c *cutter) accept() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		c.mu.Lock()
		c.conns[near], c.conns[far] = true, true
		c.mu.Unlock()
		c.owned.Go(func() { c.carry(near, far) })
		c.owned.Go(func() { c.carry(far, near) })
	}
}

func (c *cutter) carry(from, to net.Conn) {
	defer func() {
		_, _ = from.Close(), to.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.conns, from)
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if c.mute.Load() {
			continue // lost on the way
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut ends all connections at once.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, like from a firewall
		}
		_ = conn.Close()
	}
}

// load writes as the pipeline does: its calls give up after a while and come
// again with the same rows. It records what was acknowledged.
type load struct {
	c     *status.Cassandra
	calls atomic.Int64
	stop  chan struct{}
	wg    sync.WaitGroup

	mu    sync.Mutex
	acked []push.Row
	errs  map[string]int
}

func startLoad(t *testing.T, c *status.Cassandra, patience time.Duration) *load {
	l := &load{c: c, stop: make(chan struct{}), errs: map[string]int{}}
	for range 8 {
		l.wg.Go(func() {
			for {
				rows := delivered(20)
				for {
					select {
					case <-l.stop:
						return
					default:
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					err := c.Write(ctx, rows)
					cancel()
					if err == nil {
						break
					}
					l.note(err)
					time.Sleep(50 * time.Millisecond)
				}
				l.calls.Add(1)
				l.mu.Lock()
				l.acked = append(l.acked, rows...)
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (l *load) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.errs) < 100 {
		l.errs[err.Error()]++
	}
}

// progress waits until more calls succeed, and returns how long that took.
func (l *load) progress(t *testing.T, what string, within time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	for n := l.calls.Load() + 30; l.calls.Load() < n; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > within {
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Fatalf("%s: no write came through within %v; errors: %v", what, within, l.errs)
		}
	}
	return time.Since(begin)
}

func (l *load) end(t *testing.T) {
	close(l.stop)
	l.wg.Wait()
	expectStored(t, l.c, l.acked)
	t.Logf("%d rows acknowledged", len(l.acked))
}

// heap is the allocated and reachable memory in MiB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// The server is killed, comes back as a new process on the same port, hangs, or
// has its connections cut or silenced. Nothing is acknowledged that is not
// durable, memory stays flat, reads fail in time with the cause, and everything
// recovers by itself.
func TestOutages(t *testing.T) {
	server := localtest.Cassandra(t, local.CassandraOptions{Durable: true})
	proxy := cut(t, server.Addr())
	reg := prometheus.NewRegistry()
	const timeout = 2 * time.Second
	c := open(t, apply(t, status.Options{Hosts: []string{proxy.listener.Addr().String()}, Timeout: timeout, Registry: reg, Log: quiet}))
	l := startLoad(t, c, timeout)
	l.progress(t, "at the start", liveness)
	before := heap()

	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute+3**outageLength)
	defer cancel()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, outage := range []struct {
		name  string
		begin func() error
		end   func() error
		cause []string // a failed read names one of these
	}{
		{"killed", server.Kill, func() error { return server.Restart(ctx) },
			[]string{"no hosts available", "connection", "EOF", "no answer"}},
		{"hung", server.Pause, server.Resume, []string{"no answer", "no response", "no hosts available"}},
		{"mute", func() error { proxy.mute.Store(true); return nil }, func() error { proxy.mute.Store(false); return nil },
			[]string{"no answer", "no response", "no hosts available"}},
	} {
		do(outage.begin())
		acked := l.calls.Load() + 8 // those that the server had answered
		length := time.Now().Add(*outageLength)
		begin := time.Now()
		_, err := c.Read(ctx, []string{delivered(1)[0].ID})
		if took := time.Since(begin); err == nil || took > liveness {
			t.Errorf("%s: a read ended after %v with %v", outage.name, took, err)
		} else if !containsOne(err.Error(), outage.cause) {
			t.Errorf("%s: a read says %q, want one of %q", outage.name, err, outage.cause)
		}
		time.Sleep(time.Until(length))
		if n := l.calls.Load(); n > acked {
			t.Errorf("%s: %d writes were acknowledged meanwhile", outage.name, n-acked)
		}
		after := heap()
		if after > before+20 {
			t.Errorf("%s: the heap grew from %.0f to %.0f MiB", outage.name, before, after)
		}
		if err := c.Ping(ctx); err == nil {
			t.Errorf("%s: it answers a ping", outage.name)
		}
		do(outage.end())
		t.Logf("%s: back %v after its end; heap %.1f MiB before, %.1f during", outage.name, l.progress(t, outage.name, liveness).Round(time.Millisecond), before, after)
	}
	for range 5 {
		proxy.cut()
		l.progress(t, "after a cut", liveness)
	}
	l.mu.Lock()
	for err := range l.errs {
		if !strings.Contains(err, "after:") && !strings.Contains(err, "no answer") {
			t.Errorf("a write says %q, and not what it met", err)
		}
	}
	l.mu.Unlock()
	l.end(t)
	if n, err := testutil.GatherAndCount(reg, "push_status_sessions_rebuilt_total"); n != 1 || err != nil {
		t.Errorf("%d metrics, %v", n, err)
	}
}

func containsOne(s string, of []string) bool {
	for _, part := range of {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}
