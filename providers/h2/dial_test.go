package h2

import (
	"net/http"
	"net/netip"
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

// A name may have another address each time that it is looked up: what is kept of them is
// bounded, and the latest are those.
func TestAddressesThatAreKeptAreBounded(t *testing.T) {
	d := &dialer{}
	for i := range 1000 {
		d.order([]netip.Addr{netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})})
	}
	if len(d.last) != 64 || d.last[63] != netip.AddrFrom4([4]byte{10, 0, 3, 231}) {
		t.Errorf("%d addresses are kept, the last one %v; want 64, and the 1000th", len(d.last), d.last[len(d.last)-1])
	}
}

// Workers that have used none of a name's addresses do not all begin with the same one.
func TestAddressesThatAreNewComeInAnyOrder(t *testing.T) {
	var found []netip.Addr
	for i := range 16 {
		found = append(found, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))
	}
	first := make(map[netip.Addr]bool)
	for range 100 {
		first[(&dialer{}).order(found)[0]] = true
	}
	if len(first) < 2 {
		t.Error("100 workers begin with the same of 16 addresses")
	}
}
