package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
)

// wire is between a client and its gateway. It keeps what was said last, and can lose an
// answer. It is used by who calls the client, one at a time.
type wire struct {
	next   http.RoundTripper
	loses  int      // the status that something in between says in place of the next answer; 0 = it loses none
	sent   []string // requests: method, path, media type and body
	answer []byte   // the last one
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	said, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w.sent = append(w.sent, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Content-Type")+" "+string(said))
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(said))
	a, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	w.answer, err = io.ReadAll(a.Body)
	if err = errors.Join(err, a.Body.Close()); err != nil {
		return nil, err
	}
	a.Body = io.NopCloser(bytes.NewReader(w.answer))
	if w.loses != 0 {
		a.StatusCode, a.Header, a.Body, w.loses = w.loses, http.Header{}, io.NopCloser(strings.NewReader("<html>bad gateway</html>")), 0
	}
	return a, nil
}

// CloseIdleConnections closes those below.
func (w *wire) CloseIdleConnections() { w.next.(*http.Transport).CloseIdleConnections() }

// twice makes a call whose first answer is lost when the gateway has already done what was
// asked. It must succeed by one repeat, after a pause, that says the same. Where it returns
// what the gateway says, the gateway must have said nothing that is not read.
func twice[T any](w *world, call func() (T, error)) T {
	w.t.Helper()
	w.pauses, w.wire.sent, w.wire.loses = nil, nil, http.StatusBadGateway
	got, err := call()
	if err != nil {
		w.t.Fatal(err)
	}
	if sent := w.wire.sent; len(w.pauses) != 1 || len(sent) != 2 || sent[0] != sent[1] {
		w.t.Errorf("it sent %q, with pauses of %v", sent, w.pauses)
	}
	if reflect.TypeFor[T]().Kind() == reflect.Pointer {
		w.reads(new(T))
	}
	return got
}

// reads wants the last answer to have nothing but what a type has.
func (w *world) reads(into any) {
	w.t.Helper()
	d := json.NewDecoder(bytes.NewReader(w.wire.answer))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		w.t.Errorf("%s: %v", w.wire.answer, err)
	}
}

// refusal is a call that is answered by a problem.
type refusal struct {
	why, code string
	call      func() error
}

// refuses wants the problems to be returned at once.
func (w *world) refuses(list []refusal) {
	w.t.Helper()
	for _, r := range list {
		w.pauses = nil
		var p *Problem
		if err := r.call(); !errors.As(err, &p) || p.Code != r.code || len(w.pauses) > 0 {
			w.t.Errorf("%s: %v after pauses of %v, want %s", r.why, err, w.pauses, r.code)
		}
	}
}

// failed is the error of a call.
func failed[T any](_ T, err error) error { return err }

// An answer that cannot be read is asked for again, and nothing of it is in the next one.
func TestNothingStaysOfAnAnswer(t *testing.T) {
	w, store := topicWorld(t)
	store.has(t, "offers", "shop", "orders")
	var asked atomic.Int32
	w.mu.Lock()
	w.before = func(rw http.ResponseWriter, _ *http.Request) bool {
		if asked.Add(1) > 1 {
			return false
		}
		_, _ = io.WriteString(rw, `{"next": "stale", "topics": 7}`)
		return true
	}
	w.mu.Unlock()
	if got, err := w.client.Topics(t.Context(), Page{}); err != nil || got.Next != "" || len(got.Topics) != 1 || len(w.pauses) != 1 {
		t.Errorf("%+v, %v after pauses of %v", got, err, w.pauses)
	}
}
