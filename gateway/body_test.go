package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// postBody sends a body that comes from a reader as one of the kind of a path.
func (w *world) postBody(path string, body io.Reader) *reply {
	w.t.Helper()
	req := httptest.NewRequest("POST", path, body)
	req.Header.Set("Authorization", "Bearer "+keyOrders)
	req.Header.Set("Content-Type", "application/json")
	if strings.HasSuffix(path, "/batch") {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	return w.exchange(req)
}

// Bodies under way take a bounded memory together. What is beyond is refused at once, and
// single messages have a part of it that batches and queries cannot take.
func TestBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := &w.gateway.bodies
		if b.limit != 32<<20 {
			t.Fatalf("%d bytes", b.limit)
		}
		b.limit = 4 * firstRoom
		spaces := strings.Repeat(" ", firstRoom) // legal, and no more than is thrown away
		stuck := make(chan struct{})             // closed below
		var callers sync.WaitGroup
		hold := func(path, text string) {
			r, written := io.Pipe()
			callers.Go(func() { w.postBody(path, r) })
			_, _ = io.WriteString(written, text)
			callers.Go(func() {
				<-stuck
				_ = written.CloseWithError(errors.New("gone"))
			})
			synctest.Wait()
		}
		refused := func(why, path, body string) {
			t.Helper()
			if got := w.postBody(path, strings.NewReader(body)); got.status != http.StatusServiceUnavailable || got.code() != "busy" || got.header.Get("Retry-After") != "1" {
				t.Errorf("%s: %d %s", why, got.status, got.text)
			}
		}
		hold("/v1/messages/batch", "{")
		hold("/v1/messages", "{")
		if taken := b.taken.Load(); taken != 2*firstRoom {
			t.Errorf("two bodies that have only begun take %d bytes", taken)
		}
		refused("a batch that grows into what is left to messages", "/v1/messages/batch", spaces+"{}")
		hold("/v1/receipts:query", "{")
		refused("a batch, when only that is left", "/v1/messages/batch", "{}")
		refused("a query, likewise", "/v1/receipts:query", "{}")
		if got := w.post(plain); got.status != http.StatusAccepted {
			t.Errorf("a message: %d %s", got.status, got.text)
		}
		hold("/v1/messages", "{")
		refused("a message, when nothing is left", "/v1/messages", plain)
		close(stuck)
		callers.Wait()
		if taken := b.taken.Load(); taken != 0 {
			t.Errorf("%d bytes were not given back", taken)
		}
		if got := w.post(spaces + plain); got.status != http.StatusAccepted {
			t.Errorf("when they are gone: %d %s", got.status, got.text)
		}
		if got := w.post(strings.Repeat(" ", 4*firstRoom) + plain); got.code() != "busy" {
			t.Errorf("one that is larger than all there is: %d %s", got.status, got.text)
		}
		if taken := b.taken.Load(); taken != 0 {
			t.Errorf("%d bytes were not given back", taken)
		}
	})
}

// A body has its memory as long as it is read and checked, and not while Kafka is waited
// for: what it became is counted there.
func TestBodiesDoNotWaitForKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.ack = func(Record, func(Place, error)) {} // never
		var callers sync.WaitGroup
		callers.Go(func() { w.post(plain) })
		callers.Go(func() { w.postBody("/v1/messages/batch", strings.NewReader(`{"id":"n",`+plain[1:])) })
		synctest.Wait()
		if taken := w.gateway.bodies.taken.Load(); taken != 0 || len(w.gateway.requests) != 2 {
			t.Errorf("%d requests hold %d bytes", len(w.gateway.requests), taken)
		}
		callers.Wait()
	})
}

// Bodies of any length, in pieces of any size, arrive as they are, up to the bound, and
// the largest that there may be has room.
func TestBodiesArriveWhole(t *testing.T) {
	w := newWorld(t)
	for _, most := range []int{10, firstRoom - 1, firstRoom, 5 * firstRoom, w.gateway.o.Limits.Batch} {
		for _, length := range []int{0, 1, most - 1, most, most + 1, 2*most + 1} {
			text := strings.Repeat("0123456789", 1+length/10)[:length]
			for how, body := range map[string]io.Reader{"at once": strings.NewReader(text), "half of what is asked for": iotest.HalfReader(strings.NewReader(text)),
				"with the end in the last piece": iotest.DataErrReader(strings.NewReader(text))} {
				req := httptest.NewRequest("POST", "/", body)
				req.ContentLength = -1
				req.Header.Set("Content-Type", "application/json")
				got, problem := w.gateway.readBody(req, "application/json", most, ofMany)
				switch {
				case length > most && (problem == nil || problem.Code != codeBodyTooLarge):
					t.Errorf("%d bytes of %d, %s: %+v", length, most, how, problem)
				case length <= most && (problem != nil || string(got.text) != text):
					t.Errorf("%d bytes of %d, %s: %+v", length, most, how, problem)
				}
				if got != nil {
					w.gateway.bodies.give(got)
				}
			}
		}
	}
	if taken := w.gateway.bodies.taken.Load(); taken != 0 {
		t.Errorf("%d bytes were not given back", taken)
	}
}

// A configuration of large bodies gets memory for them.
func TestMemoryForBodies(t *testing.T) {
	for why, tt := range map[string]struct {
		limits Limits
		want   int64
	}{
		"the default":   {Limits{Message: 128 << 10, Batch: 4 << 20, Query: 1000}, 32 << 20},
		"large batches": {Limits{Message: 128 << 10, Batch: 16 << 20, Query: 1000}, 64 << 20},
	} {
		if got := tt.limits.bodies(); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", why, got, tt.want)
		}
	}
}

// What Kafka says after a request has given up is heard by nobody, also not by the next
// request, which has other memory.
func TestLateConfirmations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var late []func()
		w.ack = func(r Record, done func(Place, error)) { late = append(late, func() { done(w.keep(r), nil) }) }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			req := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(plain))
			req.Header.Set("Authorization", "Bearer "+keyOrders)
			req.Header.Set("Content-Type", "application/json")
			w.gateway.ServeHTTP(httptest.NewRecorder(), req.WithContext(ctx))
		}
		early := len(late)
		answered := make(chan *reply, 1) // buffered, capacity 1: closed by nobody
		go func() { answered <- w.post(plain) }()
		synctest.Wait()
		for _, done := range late[:early] {
			done()
		}
		synctest.Wait()
		select {
		case got := <-answered:
			t.Fatalf("it was answered by another's confirmation: %s", got.text)
		default:
		}
		late[early]()
		if got := <-answered; got.status != http.StatusAccepted || got.string("id") == "" || early != 3 {
			t.Errorf("%d %s", got.status, got.text)
		}
	})
}
