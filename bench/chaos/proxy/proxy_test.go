package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo serves what it reads back, and tells the addresses it saw.
func echo(t *testing.T) (addr string, seen chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seen = make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen <- c.RemoteAddr().String()
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), seen
}

func listen(t *testing.T, target string, opened func(net.Addr)) *Proxy {
	t.Helper()
	p, err := Listen(target, opened)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error("closing twice:", err)
		}
	})
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

func says(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	hears(t, c, text)
}

func hears(t *testing.T, c net.Conn, text string) {
	t.Helper()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

// silent asserts that nothing comes for a while.
func silent(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	n, err := c.Read(make([]byte, 1))
	if n > 0 || !isTimeout(err) {
		t.Fatalf("got %d bytes, %v; want silence", n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func isReset(t *testing.T, c net.Conn) {
	t.Helper()
	_, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %v, want a reset", err)
	}
}

// refuses asserts that a new connection is reset at once: some kernels let the
// dial itself see it.
func refuses(t *testing.T, p *Proxy) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	switch {
	case errors.Is(err, syscall.ECONNRESET):
		return
	case err != nil:
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	isReset(t, c)
}

func TestPasses(t *testing.T) {
	addr, seen := echo(t)
	opened := make(chan string, 1)
	p := listen(t, addr, func(a net.Addr) { opened <- a.String() })
	c := dial(t, p)
	says(t, c, "hello")
	if a, b := <-opened, <-seen; a != b {
		t.Errorf("told of %s, the server saw %s", a, b)
	}
	large := strings.Repeat("0123456789", 100_000)
	go func() { _, _ = io.WriteString(c, large) }()
	hears(t, c, large)
	// One side that has said all it has to say still gets the answer.
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || len(rest) > 0 {
		t.Errorf("got %q, %v; want the end", rest, err)
	}
}

// What is held goes on when the fault is over, in both directions.
func TestHolds(t *testing.T) {
	addr, _ := echo(t)
	for name, fault := range map[string]Fault{"black hole": BlackHole(), "half-open": HalfOpen(), "deaf": {HoldUp: true}} {
		t.Run(name, func(t *testing.T) {
			p := listen(t, addr, nil)
			c := dial(t, p)
			says(t, c, "before")
			p.Set(fault)
			if _, err := io.WriteString(c, "held"); err != nil {
				t.Fatal(err)
			}
			silent(t, c)
			late := dial(t, p) // is accepted, and hears nothing either
			if _, err := io.WriteString(late, "late"); err != nil {
				t.Fatal(err)
			}
			silent(t, late)
			p.Set(Fault{})
			hears(t, c, "held")
			hears(t, late, "late")
			says(t, c, "after")
		})
	}
}

// What is shut holds only what goes to the server, whatever is set meanwhile,
// until everybody who shut it has opened it.
func TestShut(t *testing.T) {
	addr, _ := echo(t)
	p := listen(t, addr, nil)
	c := dial(t, p)
	says(t, c, "before")
	one, other := p.Shut(), p.Shut()
	if _, err := io.WriteString(c, "held"); err != nil {
		t.Fatal(err)
	}
	silent(t, c)
	p.Set(BlackHole())
	p.Set(Fault{})
	silent(t, c)
	one()
	one() // opens once
	silent(t, c)
	other()
	hears(t, c, "held")
	says(t, c, "after")
}

// What waits for its latency when the way is shut stays too.
func TestShutWhileSlow(t *testing.T) {
	addr, _ := echo(t)
	p := listen(t, addr, nil)
	c := dial(t, p)
	says(t, c, "before")
	p.Set(Fault{Latency: 30 * time.Millisecond})
	if _, err := io.WriteString(c, "held"); err != nil {
		t.Fatal(err)
	}
	open := p.Shut()
	p.Set(Fault{})
	silent(t, c)
	open()
	hears(t, c, "held")
}

func TestResetAndRefuse(t *testing.T) {
	addr, _ := echo(t)
	p := listen(t, addr, nil)
	c := dial(t, p)
	says(t, c, "hello")
	if n := p.Reset(); n != 1 {
		t.Errorf("%d connections were reset, want 1", n)
	}
	isReset(t, c)
	says(t, dial(t, p), "again")
	p.Set(Fault{Refuse: true})
	refuses(t, p)
	p.Set(Fault{})
	says(t, dial(t, p), "again")
	p.Target("")
	refuses(t, p)
}

// A cut lets through exactly as many bytes as it says.
func TestCut(t *testing.T) {
	for _, n := range []int64{0, 1, 7, 10} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := listen(t, l.Addr().String(), nil)
		c := dial(t, p)
		if _, err := io.WriteString(c, "start"); err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		hears(t, server, "start")
		cut := make(chan struct{}) // closed when Cut has returned
		go func() {
			defer close(cut)
			p.Cut(t.Context(), n)
		}()
		awaitCut(p, n)
		if _, err := io.WriteString(c, "0123456789"); err != nil {
			t.Fatal(err)
		}
		isReset(t, c)
		<-cut
		// A reset may overtake what was sent before it, but nothing after it comes.
		if got, _ := io.ReadAll(server); int64(len(got)) > n {
			t.Errorf("cut after %d: %d bytes passed", n, len(got))
		}
		server.Close()
		l.Close()
	}
}

// awaitCut waits until the one open connection is to be cut.
func awaitCut(p *Proxy, n int64) {
	for p.open()[0].left.Load() != n {
		time.Sleep(time.Millisecond)
	}
}

// Who has to say how long a cut lasted is told when it is over: a connection on
// which little is sent is reset in the end.
func TestCutOfAQuietConnection(t *testing.T) {
	addr, _ := echo(t)
	p := listen(t, addr, nil)
	c := dial(t, p)
	says(t, c, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.Cut(ctx, 777)
	isReset(t, c)
}

// A connection that hangs is ended by Close too; goleak watches.
func TestCloseWhileHolding(t *testing.T) {
	addr, _ := echo(t)
	p := listen(t, addr, nil)
	c := dial(t, p)
	says(t, c, "x")
	p.Set(BlackHole())
	if _, err := io.WriteString(c, "held"); err != nil {
		t.Fatal(err)
	}
}

func TestLatency(t *testing.T) {
	addr, _ := echo(t)
	p := listen(t, addr, nil)
	c := dial(t, p)
	const each = 30 * time.Millisecond
	p.Set(Fault{Latency: each})
	start := time.Now()
	says(t, c, "x")
	if took := time.Since(start); took < 2*each {
		t.Errorf("there and back took %v, under twice %v", took, each)
	}
	p.Set(Fault{})
	says(t, c, "x")
}
