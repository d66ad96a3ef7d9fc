package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gateway/quota"
)

// twinLine is a line of a batch.
func twinLine(id, title string) string {
	return `{"id": "` + id + `", "app": "shop", "user_id": "u42", "service_type": "transactional", "title": "` + title + `"}` + "\n"
}

// lines are the results of a batch.
func (w *world) lines(body string) (status int, results []map[string]any) {
	w.t.Helper()
	a := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: body})
	list, _ := a.json["results"].([]any)
	for _, r := range list {
		results = append(results, r.(map[string]any))
	}
	return a.status, results
}

// An id may stand in several lines of a batch: it is produced once, whether repeats are known
// otherwise or not, and who says something else with it is told where it stands.
func TestTwinsInABatch(t *testing.T) {
	for name, know := range map[string]func(*Options){"repeats are known": newKept().know, "they are not": func(*Options) {}} {
		w := newWorld(t, know, func(o *Options) { o.Metrics = NewMetrics(prometheus.NewRegistry()) })
		status, got := w.lines(twinLine("a", "x") + twinLine("b", "x") + twinLine("a", "x") + twinLine("a", "other") + twinLine("a", "x"))
		if status != http.StatusMultiStatus || len(got) != 5 || len(w.produced) != 2 {
			t.Fatalf("%s: %d %v, %d produced", name, status, got, len(w.produced))
		}
		for i, twin := range []bool{false, false, true, false, true} {
			if (got[i]["replayed"] == true) != twin || twin && (got[i]["receipt"] != got[0]["receipt"] || got[i]["accepted_at"] != got[0]["accepted_at"]) || got[i]["line"] != float64(i+1) {
				t.Errorf("%s: line %d is answered %v after %v", name, i+1, got[i], got[0])
			}
		}
		if p, _ := got[3]["problem"].(map[string]any); p["code"] != codeIDTaken || !strings.Contains(p["detail"].(string), "line 1 of this batch") || got[3]["id"] != "a" {
			t.Errorf("%s: the other message is answered %v", name, got[3])
		}
		m := w.gateway.o.Metrics
		if n, taken := testutil.ToFloat64(m.messages.WithLabelValues("transactional", "repeated")), testutil.ToFloat64(m.refusals.WithLabelValues(codeIDTaken)); n != 2 || taken != 1 {
			t.Errorf("%s: %v repeats and %v refusals are counted", name, n, taken)
		}
		if status, got = w.lines(twinLine("c", "x") + twinLine("c", "x")); status != http.StatusAccepted || got[1]["replayed"] != true || len(w.produced) != 3 {
			t.Errorf("%s: the next batch is answered %d %v", name, status, got)
		}
	}
}

// Lines that are the same share what became of the first of them: a repeat of what was accepted
// before, or a refusal. One that could not be read is not the first.
func TestTwinsShareWhatBecameOfThem(t *testing.T) {
	w := newWorld(t, newKept().know)
	_, first := w.lines(twinLine("a", "x"))
	if _, got := w.lines(twinLine("a", "x") + twinLine("a", "x")); got[0]["receipt"] != first[0]["receipt"] || got[1]["receipt"] != first[0]["receipt"] || got[0]["replayed"] != true || got[1]["replayed"] != true || len(w.produced) != 1 {
		t.Errorf("of a repeat: %v after %v, %d produced", got, first, len(w.produced))
	}
	if _, got := w.lines(strings.Replace(twinLine("b", "x"), "u42", "", 1) + twinLine("b", "x")); got[0]["problem"] == nil || got[1]["receipt"] == nil || got[1]["replayed"] != nil {
		t.Errorf("after one that cannot be read: %v", got)
	}
	if _, got := w.lines(twinLine("a", "other") + twinLine("a", "x")); got[0]["problem"] == nil || got[1]["receipt"] != first[0]["receipt"] || got[1]["replayed"] != true {
		t.Errorf("of a repeat behind another message with its id: %v after %v", got, first)
	}
	w.set(func() { w.ack = func(_ Record, done func(Place, error)) { done(Place{}, ErrBufferFull) } })
	status, got := w.lines(twinLine("c", "x") + twinLine("c", "x"))
	for i, line := range got {
		if p, _ := line["problem"].(map[string]any); status != http.StatusMultiStatus || p["code"] != codeBufferFull || line["id"] != "c" || p["id"] != nil {
			t.Errorf("line %d of what Kafka has no room for: %d %v", i+1, status, line)
		}
	}
}

// Twins cost their sender one message.
func TestTwinsCostOne(t *testing.T) {
	underLimits(t, quota.Limits{Hour: 2}, func(w *world, _ *embedded.Redis) {
		if status, got := w.lines(twinLine("a", "x") + twinLine("a", "x") + twinLine("b", "x")); status != http.StatusAccepted {
			t.Errorf("%d %v", status, got)
		}
		status, got := w.lines(twinLine("c", "x") + twinLine("c", "x"))
		for _, line := range got {
			if p, _ := line["problem"].(map[string]any); status != http.StatusMultiStatus || p["code"] != codeTooMany {
				t.Errorf("beyond the limit: %v", line)
			}
		}
	})
}

// A batch is to come again after the longest wait of its lines, and each of its records has the
// trace of its request.
func TestBatchesWaitAndAreTraced(t *testing.T) {
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	w := newWorld(t)
	send := func() *reply {
		return w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: twinLine("a", "x") + twinLine("b", "x"), header: map[string]string{"Traceparent": trace}})
	}
	if a := send(); a.status != http.StatusAccepted {
		t.Fatalf("%d %s", a.status, a.text)
	}
	for _, r := range w.produced {
		if r.Traceparent != trace {
			t.Errorf("the trace is %q", r.Traceparent)
		}
	}
	n := 0
	w.set(func() {
		w.ack = func(_ Record, done func(Place, error)) {
			if n++; n == 1 {
				done(Place{}, errAway) // 2 seconds
				return
			}
			done(Place{}, ErrBufferFull) // 1
		}
	})
	if a := send(); a.header.Get("Retry-After") != "2" {
		t.Errorf("Retry-After is %q of %s", a.header.Get("Retry-After"), a.text)
	}
}
