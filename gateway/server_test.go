package gateway

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of connections inside the process, for virtual time.
type pipes struct {
	calls  chan net.Conn // unbuffered, never closed
	closed chan struct{} // closed by Close
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.calls:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects; nil = nobody accepts within a second.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	select {
	case p.calls <- server:
		return client
	case <-time.After(time.Second):
		return nil
	}
}

func (w *world) serve(connections int) (*pipes, *Server) {
	p := &pipes{calls: make(chan net.Conn), closed: make(chan struct{})}
	return p, w.gateway.Serve(p, ServerOptions{Connections: connections, Header: 4 << 10, HeaderTime: 5 * time.Second, BodyTime: 15 * time.Second, WriteTime: 30 * time.Second, IdleTime: time.Minute})
}

func head(length int) string {
	return fmt.Sprintf("POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", keyOrders, length)
}

// Clients that are slow with a header, a body, or the next request lose their
// connection, and its place goes to another.
func TestSlowClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, s := w.serve(3)
		defer s.Close(t.Context())
		ended := func(why string, c net.Conn, after time.Duration) {
			t.Helper()
			start := time.Now()
			_, _ = io.Copy(io.Discard, c)
			if took := time.Since(start); took > after+time.Second {
				t.Errorf("%s: its connection was open for %v", why, took)
			}
		}
		var all []net.Conn
		for _, text := range []string{"POST /v1/mess", head(100) + "{", "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n"} {
			c := p.dial()
			if c == nil {
				t.Fatal("there is no place")
			}
			defer c.Close()
			if _, err := io.WriteString(c, text); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		r, err := http.ReadResponse(bufio.NewReader(all[2]), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c := p.dial(); c != nil {
			t.Fatal("a fourth connection was accepted")
		}
		ended("half a header", all[0], 5*time.Second)
		if p.dial() == nil {
			t.Error("the place was not given back")
		}
		ended("half a body", all[1], 15*time.Second)
		ended("idle", all[2], time.Minute)
	})
}

func TestLongHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, s := w.serve(1)
		defer s.Close(t.Context())
		c := p.dial()
		defer c.Close()
		go func() {
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 100<<10)+"\r\n\r\n")
		}()
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || r.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%v %v", r, err)
		}
		_ = r.Body.Close()
		_ = c.Close()
	})
}

// A gateway that stops answers what is under way, and takes nothing new.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		acks := make(chan func(), 1) // buffered, capacity 1: closed by nobody
		w.ack = func(r Record, done func(Place, error)) { acks <- func() { done(w.keep(r), nil) } }
		p, s := w.serve(2)
		c := p.dial()
		defer c.Close()
		if _, err := io.WriteString(c, head(len(plain))+plain); err != nil {
			t.Fatal(err)
		}
		ack := <-acks
		closed := make(chan struct{}) // closed by the goroutine
		go func() {
			defer close(closed)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			s.Close(ctx)
		}()
		synctest.Wait()
		if p.dial() != nil {
			t.Error("a connection was accepted")
		}
		ack()
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || r.StatusCode != http.StatusAccepted {
			t.Fatalf("%v %v", r, err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		<-closed
	})
}

// A handler that crashes is answered 500, and the gateway goes on.
func TestPanic(t *testing.T) {
	w := newWorld(t)
	w.ack = func(Record, func(Place, error)) { panic("planted") }
	p, s := w.serveTCP(t)
	defer s.Close(t.Context())
	for _, want := range []int{500, 202} {
		req, _ := http.NewRequest("POST", p+"/v1/messages", strings.NewReader(plain))
		req.Header.Set("Authorization", "Bearer "+keyOrders)
		req.Header.Set("Content-Type", "application/json")
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%d, want %d", r.StatusCode, want)
		}
		w.set(func() { w.ack = nil })
	}
	http.DefaultClient.CloseIdleConnections()
}

// serveTCP serves on a real socket.
func (w *world) serveTCP(t *testing.T) (url string, s *Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = w.gateway.Serve(l, ServerOptions{Connections: 10, Header: 4 << 10, HeaderTime: time.Minute, BodyTime: time.Minute, WriteTime: time.Minute, IdleTime: time.Minute})
	return "http://" + s.Addr().String(), s
}

// stuckReader is a client that reads nothing of an answer, until it goes away. A short one
// waits for it in buffers.
type stuckReader struct {
	*httptest.ResponseRecorder
	writing chan<- struct{}
	gone    <-chan struct{}
}

func (s stuckReader) Write(b []byte) (int, error) {
	s.writing <- struct{}{}
	if len(b) < 1<<10 {
		return len(b), nil
	}
	<-s.gone
	return 0, io.ErrClosedPipe
}

// Whoever reads the contract slowly, for which nobody needs a key, takes a fourth of the
// requests that may be under way at most: sends go on.
func TestTheContractLeavesRoomForSends(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Limits.Requests = 12 })
	for _, path := range []string{"/openapi.yaml", "/openapi/rapidoc-9.3.8.js"} {
		writing, gone, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}, 12)
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() {
				w.gateway.ServeHTTP(stuckReader{httptest.NewRecorder(), writing, gone}, httptest.NewRequest("GET", path, nil))
				ended <- struct{}{}
			})
		}
		for range 12 { // all are written to: the contract, or that it is busy
			<-writing
		}
		for range 12 - 12/keylessShare { // and who is told so goes away
			<-ended
		}
		if got := w.post(plain); got.status != 202 {
			t.Errorf("a message while %s is read: %d %s", path, got.status, got.text)
		}
		close(gone)
		all.Wait()
		rec := httptest.NewRecorder()
		if w.gateway.ServeHTTP(rec, httptest.NewRequest("GET", path, nil)); rec.Code != 200 {
			t.Errorf("%s afterwards: %d", path, rec.Code)
		}
	}
}
