package h2

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
)

// Each connection carries the credential that it was opened under, whenever requests
// were written: what waits for one when the credential changes is written anew.
func TestAConnectionSeesOneCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		seen := make(map[int]map[string]int) // by connection and credential; one connection at a time
		s.script = func(c *peerConn, n int) {
			for {
				switch f := c.next().(type) {
				case nil:
					return
				case *http2.MetaHeadersFrame:
					for _, h := range f.Fields {
						if h.Name != "authorization" {
							continue
						}
						s.mu.Lock()
						if seen[n] == nil {
							seen[n] = make(map[string]int)
						}
						seen[n][h.Value]++
						s.mu.Unlock()
					}
				case *http2.DataFrame:
					if f.StreamEnded() {
						c.answer(f.StreamID)
					}
				}
			}
		}
		var identity atomic.Uint64
		name := func(of uint64) []byte { return fmt.Appendf(nil, "key %d", of) }
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 4, Identity: identity.Load,
			Authorize: func(r *Request, of uint64) { r.Header[0].Value, r.Identity = name(of), of }})
		send := func(n int, of uint64) *ledger {
			rs := make([]*Request, n)
			for i := range rs {
				rs[i] = post(fmt.Sprintf("/%d", i))
				rs[i].Header = append([]Field{{Name: "authorization", Value: name(of)}}, rs[i].Header...)
				rs[i].Identity = of
			}
			return submit(t, p, rs...)
		}
		send(50, 0).wait()
		for of := uint64(1); of <= 3; of++ {
			late := send(50, of-1) // written before the change, and sent on either side of it
			identity.Store(of)
			send(50, of).wait()
			late.wait()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		total := 0
		for n, credentials := range seen {
			if len(credentials) != 1 {
				t.Errorf("connection %d has seen %v", n, credentials)
			}
			for _, times := range credentials {
				total += times
			}
		}
		if total != 350 || len(seen) < 4 {
			t.Errorf("%d requests over %d connections", total, len(seen))
		}
	})
}

// Two changes right after each other, while a write is put together: nobody signs for the
// connection's credential any more, and it must not see the newest.
func TestAConnectionSeesOneCredentialOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		seen := make(map[int]map[string]bool)
		s.script = func(c *peerConn, n int) {
			for {
				switch f := c.next().(type) {
				case nil:
					return
				case *http2.MetaHeadersFrame:
					for _, h := range f.Fields {
						if h.Name == "authorization" {
							s.mu.Lock()
							if seen[n] == nil {
								seen[n] = make(map[string]bool)
							}
							seen[n][h.Value] = true
							s.mu.Unlock()
						}
					}
				case *http2.DataFrame:
					if f.StreamEnded() {
						c.answer(f.StreamID)
					}
				}
			}
		}
		var identity atomic.Uint64
		asked := 0
		p := s.pool(Options{Connections: 1, StreamsPerConnection: 4, Identity: identity.Load,
			Authorize: func(r *Request, _ uint64) { // as a source that remembers the newest only
				if asked++; asked == 5 {
					identity.Add(2)
				}
				r.Identity = identity.Load()
				r.Header[0].Value = fmt.Appendf(nil, "key %d", r.Identity)
			}})
		rs := make([]*Request, 30)
		for i := range rs {
			rs[i] = post(fmt.Sprintf("/%d", i))
			rs[i].Header = append([]Field{{Name: "authorization", Value: []byte("none")}}, rs[i].Header...)
			rs[i].Identity = 99 // of no connection: each is written anew
		}
		submit(t, p, rs...).wait()
		for i, r := range rs {
			if r.Outcome != Answered {
				t.Errorf("%d: %v, %v", i, r.Outcome, r.Err)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for n, credentials := range seen {
			if len(credentials) != 1 {
				t.Errorf("connection %d has seen %v", n, credentials)
			}
		}
		if len(seen) != 2 {
			t.Errorf("%d connections, want 2", len(seen))
		}
	})
}
