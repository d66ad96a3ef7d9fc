//go:build !race

package gateway

// Without the race detector, which knows no more than 8,128 goroutines.

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Ten thousand slow clients, as many as there may be, keep nobody else out for longer than
// one of them may take for a body: with half a header, half a body, or an answer that they
// do not read.
func TestTenThousandSlowClients(t *testing.T) {
	const clients = 10_000
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Limits.Requests = 4000 })
		p, s := w.serve(clients)
		defer s.Close(t.Context())
		texts := []string{"POST /v1/mess", head(100) + "{", "GET /openapi.yaml HTTP/1.1\r\nHost: x\r\n\r\n"}
		var slow sync.WaitGroup
		for i := range clients {
			c := p.dial()
			if c == nil {
				t.Fatalf("client %d has no place", i)
			}
			slow.Go(func() {
				for _, b := range []byte(texts[i%len(texts)]) { // one byte now and then
					if _, err := c.Write([]byte{b}); err != nil {
						break
					}
					time.Sleep(time.Millisecond)
				}
				if i%len(texts) < 2 { // a socket has room for the little that they are told
					_, _ = io.Copy(io.Discard, c)
				}
				time.Sleep(time.Hour)
				_ = c.Close()
			})
		}
		if c := p.dial(); c != nil {
			t.Fatal("one more than may be was accepted")
		}
		began := time.Now()
		var c net.Conn
		for c == nil && time.Since(began) < time.Minute {
			c = p.dial()
		}
		if c == nil {
			t.Fatal("nobody else got a place within a minute")
		}
		defer c.Close()
		if waited := time.Since(began); waited > 6*time.Second {
			t.Errorf("another one got a place after %s", waited)
		}
		answers := bufio.NewReader(c)
		status := http.StatusServiceUnavailable
		for status == http.StatusServiceUnavailable { // while halves of bodies take all requests that may be under way: it comes again as it is told
			if _, err := io.WriteString(c, head(len(plain))+plain); err != nil {
				t.Fatal(err)
			}
			r, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Fatal(err)
			}
			if status = r.StatusCode; status == http.StatusServiceUnavailable {
				if r.Header.Get("Retry-After") != "1" {
					t.Fatalf("refused with %v", r.Header)
				}
				time.Sleep(time.Second)
			}
		}
		if took := time.Since(began); status != http.StatusAccepted || took > 16*time.Second {
			t.Errorf("answered %d after %s", status, took)
		}
		_ = c.Close()
		slow.Wait()
	})
}
