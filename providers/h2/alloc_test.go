package h2

import (
	"context"
	"runtime"
	"testing"
)

// In steady state a request costs no allocation, in this package or in the
// runtime: no goroutine, timer or channel. The server is another process. With
// the race detector, sync.Pool, which crypto/tls uses for each record, drops
// some objects, so the limit is a tenth and not a hundredth.
func TestNoAllocationPerRequest(t *testing.T) {
	url, conf := startServer(t, 0)
	p := open(t, Options{URL: url, TLS: conf, Connections: 2, StreamsPerConnection: 100, AnswerHeaders: []string{"apns-id"}})
	const n = 2000
	rs := make([]*Request, n)
	for i := range rs {
		rs[i] = benchRequest(i)
	}
	left, all := 0, make(chan struct{})
	g := NewGroup(func(back []*Request) {
		for _, r := range back {
			if r.Outcome != Answered || len(r.Answer.Header[0]) != 36 {
				t.Errorf("%v, %v, %q", r.Outcome, r.Err, r.Answer.Header)
			}
		}
		if left -= len(back); left == 0 {
			all <- struct{}{}
		}
	})
	round := func() {
		left = n
		if _, err := p.SubmitTo(context.Background(), 0, rs, g); err != nil {
			t.Error(err)
		}
		<-all
	}
	for range 20 {
		round()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const rounds = 20
	for range rounds {
		round()
	}
	runtime.ReadMemStats(&after)
	if per := float64(after.Mallocs-before.Mallocs) / (n * rounds); per > 0.1 {
		t.Errorf("%.3f allocations a request", per)
	}
}
