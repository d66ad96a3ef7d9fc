package h2

import (
	"net/http"
	"sync"
	"testing"
)

func TestNextConnectionResumesTheSession(t *testing.T) {
	var mu sync.Mutex
	var resumed []bool
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		resumed = append(resumed, r.TLS.DidResume)
	}, nil)
	p := open(t, Options{URL: s.URL, TLS: roots(s), Connections: 1})
	for range 2 {
		r := post("/a")
		send(t, p, r)
		p.Retire(r)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(resumed) != 2 || resumed[0] || !resumed[1] || p.Stats().Dials != 2 {
		t.Errorf("resumed: %v over %d connections; want a whole handshake and then a short one", resumed, p.Stats().Dials)
	}
}
