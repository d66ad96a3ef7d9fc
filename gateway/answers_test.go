package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// keeper is a ResponseWriter as net/http's of HTTP/2 is when the stream is reset: Write
// has failed, and the frame with the text may be written still.
type keeper struct {
	httptest.ResponseRecorder
	kept []byte
}

func (k *keeper) Write(p []byte) (int, error) {
	k.kept = p
	return 0, errors.New("stream closed")
}

func TestAnAnswerThatWasNotWrittenIsNotUsedAgain(t *testing.T) {
	w := newWorld(t)
	batch := func(name string) *http.Request {
		var b strings.Builder
		for i := range 30 {
			fmt.Fprintf(&b, `{"id":"%s-%03d","app":"shop","service_type":"otp","user_id":"%s","title":"x"}`+"\n", name, i, name)
		}
		r := httptest.NewRequest("POST", "/v1/messages/batch", strings.NewReader(b.String()))
		r.Header.Set("Authorization", "Bearer "+keyOrders)
		r.Header.Set("Content-Type", "application/x-ndjson")
		return r
	}
	for range 50 {
		k := &keeper{ResponseRecorder: *httptest.NewRecorder()}
		w.gateway.ServeHTTP(k, batch("first"))
		if len(k.kept) <= 4096 {
			t.Fatal(len(k.kept))
		}
		w.gateway.ServeHTTP(httptest.NewRecorder(), batch("other"))
		if strings.Contains(string(k.kept), "other-") {
			t.Fatalf("the answer that may still be on its way has another's: %.120s", k.kept)
		}
	}
}

// So of a query; and that is to be asked again as soon as the first of its receipts is.
func TestAnAnswerToAQueryThatWasNotWrittenIsNotUsedAgain(t *testing.T) {
	w := newWorld(t)
	of := func(id string, nexts ...int) (receipts []string, all []found) {
		for range 30 {
			for _, next := range nexts {
				receipts, all = append(receipts, id), append(all, found{report: &Report{Receipt: id, ID: id, Devices: []Device{}, next: next}})
			}
		}
		return receipts, all
	}
	for range 50 {
		k := &keeper{ResponseRecorder: *httptest.NewRecorder()}
		receipts, all := of("first", 0, 5, 1, 30)
		w.gateway.answerQuery(k, receipts, all)
		if len(k.kept) <= 4096 || k.Header().Get("Retry-After") != "1" {
			t.Fatalf("%d bytes, to be asked again after %q s", len(k.kept), k.Header().Get("Retry-After"))
		}
		receipts, all = of("other", 0, 0, 0, 0)
		r := httptest.NewRecorder()
		w.gateway.answerQuery(r, receipts, all)
		if strings.Contains(string(k.kept), "other") || r.Header().Get("Retry-After") != "" {
			t.Fatalf("the answer that may still be on its way has another's: %.120s", k.kept)
		}
	}
}

// The id of a problem, too.
func TestTheIDInAProblemIsACopy(t *testing.T) {
	w := newWorld(t)
	for _, more := range []string{`"app":"bank","service_type":"otp"`, `"app":"unconfigured","service_type":"otp"`, `"app":"shop"`, `"app":"shop","service_type":"none"`} {
		k := &check{caller: &Caller{Sender: "orders", apps: map[string]bool{"shop": true, "unconfigured": true}}, now: clock()}
		body := []byte(`{"id":"device-only-1",` + more + `,"device":{"platform":"fcm","token":"aaaaaaaaaaaaaaaa"},"title":"x"}`)
		var m message
		p := w.gateway.accept(k, body, &m)
		for i := range body {
			body[i] = 'Z'
		}
		if p == nil || p.ID != "device-only-1" {
			t.Errorf("%s: %+v", more, p)
		}
	}
}
