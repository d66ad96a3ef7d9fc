package h2

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// A stream that ends is used again at once, without a tick, timer or idle
// connection between an answer and the next request. With a latency of L and S
// streams, n requests take n/S times L of virtual time and no more, whether
// they wait in the queue or are submitted by the callback of an answer.
func TestSlotsAreRefilledAtOnce(t *testing.T) {
	const (
		connections = 4
		streams     = 50
		latency     = 50 * time.Millisecond
		rounds      = 20
	)
	for name, backlog := range map[string]bool{"from a backlog": true, "from the callback": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newPeer(t)
				s.settings = []http2.Setting{{ID: http2.SettingMaxConcurrentStreams, Val: streams}}
				s.script = answerAfter(latency)
				p := s.pool(Options{Connections: connections, StreamsPerConnection: streams, Timeout: time.Hour})
				// All connections are open and warm.
				for p.Stats().Connections < connections {
					submit(t, p, posts(4*connections*streams)...).wait()
				}
				const n = connections * streams * rounds
				start := time.Now()
				if backlog {
					submit(t, p, posts(n)...).wait()
				} else {
					circulate(t, p, connections*streams, n)
				}
				if got, want := time.Since(start), rounds*latency; got != want {
					t.Errorf("%d requests over %d streams took %v, want %v", n, connections*streams, got, want)
				}
			})
		})
	}
}

// answerAfter is a script that answers each request after a delay.
func answerAfter(latency time.Duration) func(*peerConn, int) {
	return func(c *peerConn, _ int) {
		var answers sync.WaitGroup
		defer answers.Wait()
		var mu sync.Mutex
		for id := c.request(); id != 0; id = c.request() {
			answers.Go(func() {
				time.Sleep(latency)
				mu.Lock()
				defer mu.Unlock()
				c.answer(id)
			})
		}
	}
}

// circulate keeps this many requests in flight until n were answered. A request
// that comes back through one group continues under the other.
func circulate(t *testing.T, p *Pool, width, n int) {
	t.Helper()
	var mu sync.Mutex
	left, missing := n-width, n
	all := make(chan struct{})
	var groups [2]*Group
	for i := range groups {
		groups[i] = NewGroup(func(rs []*Request) {
			wantAll(t, rs, Answered)
			mu.Lock()
			if missing -= len(rs); missing == 0 {
				close(all)
			}
			again := rs[:min(len(rs), left)]
			left -= len(again)
			mu.Unlock()
			if _, err := p.SubmitTo(context.Background(), 0, again, groups[1-i]); err != nil {
				t.Error(err)
			}
		})
	}
	if _, err := p.SubmitTo(t.Context(), 0, posts(width), groups[0]); err != nil {
		t.Fatal(err)
	}
	<-all
}
