package gateway

import (
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// tellMany reports events in a batch.
func (w *world) tellMany(lines ...string) *reply {
	w.t.Helper()
	return w.do(request{method: "POST", path: "/v1/events/batch", body: strings.Join(lines, "\n")})
}

func reportLineOf(token, event string) string {
	return `{"token":"` + token + `","event":"` + event + `"}`
}

// A batch is what its lines are one by one: each is taken by itself, and answered in its place.
func TestReportsInABatch(t *testing.T) {
	w := newWorld(t)
	_, _, news := w.sent("news")
	_, _, promo := w.sent("promo")
	got := w.tellMany(reportLineOf(news, "CLICKED"), "", reportLineOf(promo, "UNSUBSCRIBED"), reportLineOf(promo, "CLICKED"), reportLineOf(news, "CLICKED"))
	if got.status != 200 || got.json["accepted"] != 4.0 || got.json["failed"] != 0.0 {
		t.Fatalf("%d %s", got.status, got.text)
	}
	if want := `[{"line":1,"event":"CLICKED"},{"line":3,"event":"UNSUBSCRIBED"},{"line":4,"event":"CLICKED"},{"line":5,"event":"CLICKED"}]}`; !strings.HasSuffix(strings.TrimSpace(got.text), want) {
		t.Errorf("answered %s", got.text)
	}
	if got := w.counts(keySupport, "app=shop"); got != "news 1 0; promo 1 1; " || w.types("u42") != "[promo]" {
		t.Errorf("counted %s, opted out of %s", got, w.types("u42"))
	}

	got = w.tellMany(reportLineOf(news, "OPENED"), reportLineOf(promo[:len(promo)-4]+"AAAA", "CLICKED"), `{"token":1}`, "x", reportLineOf(news, "CLICKED"))
	var codes []any
	for _, r := range got.json["results"].([]any) {
		problem, _ := r.(map[string]any)["problem"].(map[string]any)
		codes = append(codes, problem["code"])
	}
	if want := "[invalid_field no_such_token invalid_field bad_request <nil>]"; got.status != 207 || fmt.Sprint(codes) != want || got.header.Get("Retry-After") != "" {
		t.Errorf("%d %v, want %s", got.status, codes, want)
	}
	w.clicks.Fail(errAway)
	if got := w.tellMany(reportLineOf(news, "CLICKED"), reportLineOf(news, "OPENED")); got.status != 207 || got.json["failed"] != 2.0 || got.header.Get("Retry-After") != "2" {
		t.Errorf("while nothing can be kept: %d %s", got.status, got.text)
	}
	if got := testutil.ToFloat64(w.gateway.o.Metrics.events.WithLabelValues("CLICKED", "status_away")); got != 1 {
		t.Errorf("%v are counted", got)
	}
}

// Batches that are none change nothing.
func TestBatchesOfReportsRefused(t *testing.T) {
	w := newWorld(t)
	_, _, token := w.sent("news")
	one := reportLineOf(token, "CLICKED")
	for body, code := range map[string]string{
		"": "bad_request", strings.Repeat(one+"\n", 1001): "too_many_lines", strings.Repeat(" ", 1000*reportLineBytes+1): "body_too_large",
	} {
		if got := w.tellMany(body); got.code() != code || w.clicks.Notes() != 0 {
			t.Errorf("%d bytes: %d %s", len(body), got.status, got.code())
		}
	}
	if got := w.do(request{method: "POST", path: "/v1/events/batch", body: one, header: map[string]string{"Content-Type": "application/json"}}); got.code() != "media_type" {
		t.Errorf("JSON: %d %s", got.status, got.text)
	}
	w = newWorld(t, func(o *Options) { o.Clicks = nil })
	if got := w.tellMany(one); got.code() != "not_configured" {
		t.Errorf("without clicks: %d %s", got.status, got.text)
	}
}

// Batches take as many reports a second as there may be, and leave memory to the batches of
// those who have a key, however slowly they come.
func TestBatchesOfReportsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Clicks.Rate = 3 })
		_, _, token := w.sent("news")
		line := reportLineOf(token, "CLICKED")
		if got := w.tellMany(line, line, line, line, line); got.status != 207 || got.json["accepted"] != 3.0 || got.header.Get("Retry-After") != "1" {
			t.Errorf("%d %s", got.status, got.text)
		}

		w = newWorld(t)
		var all sync.WaitGroup
		var ends []*io.PipeWriter
		for range 20 {
			body, end := io.Pipe()
			ends = append(ends, end)
			r := httptest.NewRequest("POST", "/v1/events/batch", body)
			r.Header.Set("Content-Type", "application/x-ndjson")
			all.Go(func() {
				w.gateway.ServeHTTP(httptest.NewRecorder(), r)
				_ = body.Close()
			})
			all.Go(func() { _, _ = end.Write([]byte(strings.Repeat(" ", 600<<10))) })
		}
		synctest.Wait()
		if taken := w.gateway.bodies.taken.Load(); taken > 8<<20 {
			t.Errorf("they hold %d bytes", taken)
		}
		if got := w.tellMany(line); got.code() != "busy" || got.header.Get("Retry-After") != "1" {
			t.Errorf("one more: %d %s", got.status, got.text)
		}
		if got := w.tell(token, "OPENED"); got.code() != "invalid_field" {
			t.Errorf("a single one meanwhile: %d %s", got.status, got.text)
		}
		for _, end := range ends {
			_ = end.Close()
		}
		all.Wait()
		if got := w.tellMany(line); got.code() == "busy" {
			t.Errorf("afterwards: %d %s", got.status, got.text)
		}
	})
}
