package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// cutter passes bytes to the server until its allowance is used up; then the
// connection is cut.
type cutter struct {
	net.Conn

	mu     sync.Mutex
	armed  bool
	left   int
	passed int
	writes []int // where each write began, counted from the arming
}

func (c *cutter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.armed {
		return c.Conn.Write(b)
	}
	c.writes = append(c.writes, c.passed)
	k := min(len(b), c.left)
	if k > 0 {
		if n, err := c.Conn.Write(b[:k]); err != nil {
			return n, err
		}
	}
	c.left -= k
	c.passed += k
	if k < len(b) {
		c.Conn.Close()
		return k, errors.New("cut")
	}
	return k, nil
}

// T-34: the connection is cut at every byte of three requests over TLS, one of
// them longer than a record. A request of which the kernel took no byte is not
// accepted; one of which it took any byte is ambiguous.
func TestCutAtEveryByte(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.EnableHTTP2 = true
	certificate.StartTLS()
	defer certificate.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	warm := func(c *rawConn, stream uint32, n int64) {
		if n == 1 {
			c.answer(t, stream)
		}
	}
	s := &rawServer{listener: l, conf: &tls.Config{Certificates: certificate.TLS.Certificates, NextProtos: []string{"h2"}}}
	s.on = func(c *rawConn, stream uint32, _ int64) {
		if stream == 1 {
			warm(c, stream, 1)
		}
	}
	s.wg.Go(s.accept)
	defer func() {
		l.Close()
		s.wg.Wait()
	}()
	conf := roots(certificate)
	conf.ClientSessionCache = tls.NewLRUClientSessionCache(4)

	// cutAt writes a warm-up and three requests, cut after k bytes, and returns
	// their outcomes, the positions of the records, and whether everything was
	// sent.
	cutAt := func(k int) ([]Outcome, []int, bool) {
		var cut *cutter
		p, err := NewPool(Options{
			URL: "https://" + l.Addr().String(), TLS: conf, Connections: 1, Resends: -1, Timeout: time.Minute, Lanes: []Lane{{"only", 1, 10}},
			Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				cut = &cutter{Conn: c, left: k}
				return cut, err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		send(t, p, post("/warm"))
		c := p.all(nil)[0]
		waitIdle(t, c)
		cut.mu.Lock()
		cut.armed = true
		cut.mu.Unlock()
		rs := []*Request{post("/a"), post("/b"), post("/c")}
		rs[1].Body = make([]byte, recordSize)
		led := newLedger(t, len(rs))
		// Under c.mu, so that all three are queued before the writer takes the
		// first.
		c.mu.Lock()
		_, err = p.Submit(t.Context(), 0, rs, led.done)
		c.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		whole := false
		for {
			cut.mu.Lock()
			begun := cut.passed > recordSize
			cut.mu.Unlock()
			c.mu.Lock()
			over := c.cause != nil
			whole = begun && !over && c.writingSince.IsZero() && c.live == 3 && p.queue.len() == 0
			c.mu.Unlock()
			if over || whole {
				break
			}
			time.Sleep(10 * time.Microsecond)
		}
		done, cancel := context.WithCancel(context.Background())
		cancel() // everything still in flight is cut off now
		p.Close(done)
		led.wait()
		var os []Outcome
		for _, r := range rs {
			os = append(os, r.Outcome)
		}
		return os, cut.writes, whole
	}

	want := func(k int, records []int) string {
		// The records: /a and the start of /b; the rest of /b, and /c if the
		// writer put it there, or else a record of its own.
		o := [3]Outcome{NotAccepted, NotAccepted, NotAccepted}
		if k > 0 {
			o[0], o[1] = Ambiguous, Ambiguous
		}
		if last := records[len(records)-1]; k > last {
			o[2] = Ambiguous
		}
		return fmt.Sprint(o)
	}
	all, records, whole := cutAt(1 << 30)
	if !whole || fmt.Sprint(all) != fmt.Sprint([]Outcome{Ambiguous, Ambiguous, Ambiguous}) || len(records) < 2 {
		t.Fatalf("uncut: %v, records at %v", all, records)
	}
	end := records[len(records)-1] + 400
	for k := 0; k < end; k++ {
		// Inside the long body, only the edges of records matter.
		if near := k < 260 || k > records[1]-12 && k < records[1]+12 || k > records[len(records)-1]-12; !near && k%1997 != 0 {
			continue
		}
		got, _, all := cutAt(k)
		if all {
			break
		}
		if fmt.Sprint(got) != want(k, records) {
			t.Errorf("cut after %d bytes (records at %v): %v, want %v", k, records, got, want(k, records))
		}
	}
}

// waitIdle waits until the writer has nothing to write, so that the frames of
// the warm-up are out.
func waitIdle(t *testing.T, c *conn) {
	t.Helper()
	for range 100_000 {
		c.mu.Lock()
		idle := c.writingSince.IsZero() && len(c.control) == 0 && c.settled && c.registered && len(c.wake) == 0
		c.mu.Unlock()
		if idle {
			return
		}
		time.Sleep(10 * time.Microsecond)
	}
	t.Fatal("the connection does not come to rest")
}
