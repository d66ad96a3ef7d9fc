package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/shards"
)

// underLimits runs a test in virtual time, at the begin of an hour, with a gateway whose
// senders have limits.
func underLimits(t *testing.T, limits quota.Limits, test func(w *world, redis *embedded.Redis)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		redis, err := embedded.StartPipeRedis()
		if err != nil {
			t.Fatal(err)
		}
		o := shards.DefaultOptions()
		o.Addrs, o.Dialer = []string{redis.Addr()}, redis.Dial
		client, err := shards.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		quotas, err := quota.New(client, quota.Options{Fleet: "test", Member: "g", Default: limits, Senders: map[string]quota.Limits{"support": {}}, Gateways: 1, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{}) // closed by the next goroutine
		go func() {
			defer close(ended)
			quotas.Run(ctx)
		}()
		// It does not outlive the bubble, in which its appends would be left.
		w := newWorld(t, func(o *Options) {
			o.Users.Close()
			o.Users, o.Quotas, o.Chance = nil, quotas, func() float64 { return 0.5 }
		})
		test(w, redis)
		stop()
		<-ended
		_ = client.Close()
		redis.Close()
		time.Sleep(2 * time.Second) // the library dials once more
		synctest.Wait()
	})
}

func numbered(i int) string {
	return fmt.Sprintf(`{"id":"m-%d","app":"shop","service_type":"otp","user_id":"u","title":"x"}`, i) + "\n"
}

// header is the value of a header of an answer.
func (a *reply) told(name string) string { return a.header.Get(name) }

func TestTheAnswersOfALimitedSender(t *testing.T) {
	underLimits(t, quota.Limits{Minute: 5, Hour: 1000}, func(w *world, _ *embedded.Redis) {
		time.Sleep(20*time.Second + 500*time.Millisecond)
		for i := range 5 {
			got := w.post(plain)
			if got.status != http.StatusAccepted {
				t.Fatalf("message %d: %d %s", i, got.status, got.text)
			}
			warning := ""
			if i == 3 {
				warning = `"minute";used=80`
			} else if i == 4 {
				warning = `"minute";used=100`
			}
			for name, want := range map[string]string{
				"RateLimit-Policy": `"minute";q=5;w=60, "hour";q=1000;w=3600`, "RateLimit": fmt.Sprintf(`"minute";r=%d;t=40`, 4-i),
				"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": strconv.Itoa(4 - i), "X-RateLimit-Reset": "40", "X-RateLimit-Warning": warning, "Retry-After": "",
			} {
				if got.told(name) != want {
					t.Errorf("message %d: %s is %q, want %q", i, name, got.told(name), want)
				}
			}
		}
		got := w.post(plain)
		// 39.5 s are left, and chance adds a tenth.
		if got.status != http.StatusTooManyRequests || got.code() != "RATE_LIMIT_EXCEEDED" || got.told("Retry-After") != "44" || got.told("RateLimit") != `"minute";r=0;t=40` {
			t.Fatalf("%d %v %s", got.status, got.header, got.text)
		}
		details, _ := got.json["details"].(map[string]any)
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(details["reset_at"]))
		if err != nil || time.Until(at) < 39*time.Second || time.Until(at) > 40*time.Second {
			t.Errorf("it ends at %v, in %s", details["reset_at"], time.Until(at))
		}
		if details["limit"] != 5.0 || details["window"] != "minute" || details["current"] != 5.0 || details["retry_after"] != 44.0 ||
			fmt.Sprint(got.json["violated-policies"]) != "[minute]" || got.string("message") == "" || got.string("type") != typeQuotaExceeded || got.string("id") == "" {
			t.Errorf("says %s", got.text)
		}
		if len(w.produced) != 5 {
			t.Errorf("%d were produced", len(w.produced))
		}
		time.Sleep(44 * time.Second)
		if got := w.post(plain); got.status != http.StatusAccepted {
			t.Errorf("when it is to come again: %d %s", got.status, got.text)
		}
	})
}

func TestABatchBeyondTheLimit(t *testing.T) {
	underLimits(t, quota.Limits{Hour: 10}, func(w *world, _ *embedded.Redis) {
		body := "{}\n"
		for i := range 12 {
			body += numbered(i)
		}
		got := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: body})
		if got.status != http.StatusMultiStatus || got.json["accepted"] != 10.0 || got.json["failed"] != 3.0 || got.told("Retry-After") != "3960" || got.told("X-RateLimit-Remaining") != "0" {
			t.Fatalf("%d %v %s", got.status, got.header, got.text)
		}
		for i, r := range got.json["results"].([]any) {
			r := r.(map[string]any)
			p, _ := r["problem"].(map[string]any)
			switch {
			case i == 0 && p["code"] != "missing_field", i >= 1 && i <= 10 && p != nil:
				t.Errorf("line %d: %v", i+1, r)
			case i > 10 && (p["code"] != "RATE_LIMIT_EXCEEDED" || r["id"] != fmt.Sprint("m-", i-1)):
				t.Errorf("line %d: %v", i+1, r)
			}
		}
		if len(w.produced) != 10 {
			t.Errorf("%d were produced", len(w.produced))
		}
		// A repeat counts again: of one that was accepted, too.
		if got := w.post(strings.TrimSpace(numbered(0))); got.status != http.StatusTooManyRequests {
			t.Errorf("a repeat: %d %s", got.status, got.text)
		}
	})
}

// What is refused for another reason, and what Kafka has not taken, costs nothing.
func TestWhatCostsNothing(t *testing.T) {
	full := func(_ Record, done func(Place, error)) { done(Place{}, ErrBufferFull) }
	failed := func(_ Record, done func(Place, error)) { done(Place{}, errors.New("no leader")) }
	for _, tt := range []struct {
		why    string
		ack    func(w *world) func(Record, func(Place, error))
		body   string
		status int
		used   float64
	}{
		{"it is invalid", nil, `{"app":"shop"}`, 422, 0},
		{"it is for another app", nil, `{"id":"x","app":"bank","service_type":"otp","user_id":"u","title":"x"}`, 403, 0},
		{"the buffer is full", func(*world) func(Record, func(Place, error)) { return full }, plain, 503, 0},
		{"Kafka says no", func(*world) func(Record, func(Place, error)) { return failed }, plain, 503, 0},
		{"Kafka says no when nobody waits any more", func(w *world) func(Record, func(Place, error)) {
			return func(_ Record, done func(Place, error)) {
				time.AfterFunc(7*time.Second, func() { done(Place{}, errors.New("too late")) })
			}
		}, plain, 503, 0},
		{"Kafka has it when nobody waits any more", func(w *world) func(Record, func(Place, error)) {
			return func(r Record, done func(Place, error)) {
				time.AfterFunc(7*time.Second, func() { done(w.keep(r), nil) })
			}
		}, plain, 503, 1},
		{"Kafka has it", nil, plain, 202, 1},
	} {
		t.Run(tt.why, func(t *testing.T) {
			underLimits(t, quota.Limits{Hour: 10}, func(w *world, _ *embedded.Redis) {
				if tt.ack != nil {
					w.ack = tt.ack(w)
				}
				if got := w.post(tt.body); got.status != tt.status {
					t.Fatalf("%d %s", got.status, got.text)
				}
				time.Sleep(10 * time.Second)
				got := w.do(request{method: "GET", path: "/v1/limits", key: keyOrders})
				limits, _ := got.json["limits"].([]any)
				if len(limits) != 1 || limits[0].(map[string]any)["used"] != tt.used || limits[0].(map[string]any)["remaining"] != 10-tt.used {
					t.Errorf("stands at %s", got.text)
				}
			})
		})
	}
}

// Who goes away before Kafka has confirmed has sent it all the same, however often.
func TestGoingAwayIsNoWayAround(t *testing.T) {
	underLimits(t, quota.Limits{Hour: 3}, func(w *world, _ *embedded.Redis) {
		w.ack = func(r Record, done func(Place, error)) { time.AfterFunc(time.Second, func() { done(w.keep(r), nil) }) }
		for range 10 {
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			w.postIn(ctx, plain)
			cancel()
		}
		time.Sleep(5 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.produced) != 3 {
			t.Errorf("%d were sent, and the limit is 3", len(w.produced))
		}
	})
}

func TestLimits(t *testing.T) {
	underLimits(t, quota.Limits{Second: 1, Hour: 10}, func(w *world, redis *embedded.Redis) {
		time.Sleep(time.Minute + 400*time.Millisecond)
		w.post(plain)
		got := w.do(request{method: "GET", path: "/v1/limits", key: keyReader}) // another key of the sender
		if want := `{"sender":"orders","shared":true,"limits":[{"name":"second","window":1,"limit":1,"used":1,"remaining":0,"reset":1,"reset_at":`; got.status != 200 || !strings.HasPrefix(got.text, want) {
			t.Errorf("%d %s", got.status, got.text)
		}
		if got := w.do(request{method: "GET", path: "/v1/limits", key: keySupport}); got.text != `{"sender":"support","shared":true,"limits":[]}`+"\n" || got.told("RateLimit") != "" {
			t.Errorf("of a sender without: %v %s", got.header, got.text)
		}
		if got := w.do(request{method: "GET", path: "/v1/limits", key: "nobody-nobody-nobody-nobody-nobody"}); got.status != http.StatusUnauthorized {
			t.Errorf("of nobody: %d", got.status)
		}
		redis.Close()
		w.post(plain)
		time.Sleep(3 * time.Second)
		got = w.do(request{method: "GET", path: "/v1/limits", key: keyOrders})
		if got.json["shared"] != false {
			t.Errorf("without Redis: %s", got.text)
		}
		if got := w.post(plain); got.status != http.StatusAccepted {
			t.Errorf("without Redis: %d %s", got.status, got.text)
		}
		if got := w.post(plain); got.status != http.StatusTooManyRequests || !strings.Contains(got.text, "Redis is away") {
			t.Errorf("without Redis, and the second after it: %d %s", got.status, got.text)
		}
	})
	w := newWorld(t)
	if got := w.do(request{method: "GET", path: "/v1/limits", key: keyOrders}); got.status != 200 || got.text != `{"sender":"orders","shared":true,"limits":[]}`+"\n" {
		t.Errorf("of a gateway without limits: %d %s", got.status, got.text)
	}
	if got := w.post(plain); got.told("RateLimit-Policy") != "" || got.told("X-RateLimit-Limit") != "" {
		t.Errorf("and it tells of limits: %v", got.header)
	}
}

// postIn is post by somebody who goes away when ctx ends.
func (w *world) postIn(ctx context.Context, body string) *reply {
	r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(body)).WithContext(ctx)
	r.Header.Set("Authorization", "Bearer "+keyOrders)
	r.Header.Set("Content-Type", "application/json")
	return w.exchange(r)
}

// What was counted under the limits of its sender says so, and nothing else does.
func TestCountedRecordsSaySo(t *testing.T) {
	underLimits(t, quota.Limits{Hour: 2}, func(w *world, _ *embedded.Redis) {
		w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: numbered(1) + "{}\n" + numbered(2) + numbered(3)})
		w.do(request{method: "POST", path: "/v1/messages", key: keySupport, body: plain}) // without a limit
		var admitted []bool
		for _, r := range w.produced {
			admitted = append(admitted, r.Admitted)
		}
		if fmt.Sprint(admitted) != "[true true false]" {
			t.Errorf("admitted: %v", admitted)
		}
	})
}
