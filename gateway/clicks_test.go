package gateway

import (
	"context"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A click whose caller went away is still on its way when the next one reads.
func TestAClickWaitsForOneThatWasGivenUp(t *testing.T) {
	w := newWorld(t)
	g := w.gateway
	click := func(ctx context.Context, name string) int {
		r := httptest.NewRequest("POST", "/u/"+g.o.Signer.signLink(&link{"shop", "u42", linkType, name}), strings.NewReader("List-Unsubscribe=One-Click")).WithContext(ctx)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rec := httptest.NewRecorder()
		g.ServeHTTP(rec, r)
		return rec.Code
	}
	places := func(n int) {
		for len(g.o.Users.places) != n {
			runtime.Gosched()
		}
	}
	gate := make(chan struct{})
	w.people.set(func() { w.people.gate, w.people.stubborn = gate, true })
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan int, 1), make(chan int, 1)
	go func() { first <- click(ctx, "news") }()
	places(1)
	cancel()
	status := <-first
	go func() { second <- click(t.Context(), "offers") }()
	for range 100_000 { // until the second has read, unless it waits for the first's append
		if len(g.o.Users.places) == 2 {
			break
		}
		runtime.Gosched()
	}
	close(gate)
	t.Log(status, <-second)
	places(0)
	p, _ := w.people.Preferences(t.Context(), "u42")
	if !slices.Contains(p.Types, "news") || !slices.Contains(p.Types, "offers") {
		t.Errorf("after two clicks: %q", p.Types)
	}
}
