package gateway

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
	"github.com/pushfleet/pushfleet/gateway/quota"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/shards/shardstest"
)

// How far a sender has come stands in headers of every answer to a send that is counted, also of
// one to a topic. Redis is not asked here: nothing is admitted.
func TestHeadersOfAnswersToSends(t *testing.T) {
	quotas, err := quota.New(nil, quota.Options{Fleet: "test", Member: "g", Default: quota.Limits{Hour: 10}, Gateways: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	notes := newReports()
	w := newWorld(t, func(o *Options) { o.Fanouts, o.Quotas = notes.fanouts(), quotas })
	if a := w.makeTopic("snow", `{"app": "shop", "service_type": "transactional"}`); a.status != http.StatusCreated {
		t.Fatal(a.text)
	}
	for _, tt := range []struct {
		why    string
		got    *reply
		status int
	}{
		{"a message", w.post(plain), 429},
		{"a message to a topic", w.toSnow(`{"title": "x"}`), 429},
		{"a batch of invalid lines", w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: "{}\n"}), 207},
	} {
		if tt.got.status != tt.status || tt.got.told("RateLimit-Policy") != `"hour";q=10;w=3600` {
			t.Errorf("%s: %d, RateLimit-Policy is %q", tt.why, tt.got.status, tt.got.told("RateLimit-Policy"))
		}
		// No limit is used up: it is tried again soon, and none is named.
		if after, _ := tt.got.json["retry_after"].(float64); tt.status == 429 && (after > 2 || tt.got.json["violated-policies"] != nil || !strings.Contains(tt.got.text, "could not agree in time")) {
			t.Errorf("%s: %s", tt.why, tt.got.text)
		}
	}
}

// A line that is refused as invalid costs nothing, also beside one that is not.
func TestInvalidLinesCostNothing(t *testing.T) {
	underLimits(t, quota.Limits{Hour: 10}, func(w *world, _ *embedded.Redis) {
		if got := w.do(request{method: "POST", path: "/v1/messages/batch", key: keyOrders, body: "{}\n" + numbered(1) + "{}\n"}); got.told("X-RateLimit-Remaining") != "9" {
			t.Errorf("%d %v %s", got.status, got.header, got.text)
		}
	})
}

// What others have used is in the answer of a gateway that has sent nothing.
func TestLimitsAsRedisKnowsThem(t *testing.T) {
	underLimits(t, quota.Limits{Hour: 10}, func(w *world, redis *embedded.Redis) {
		hour := time.Now().Unix() / 3600
		redis.Mini.HSet(shards.QuotaKey("test", "orders", 3600, hour), "n", fmt.Sprint(hour), "u", "4", "b", "0", "mother", "4 1")
		if got := w.do(request{method: "GET", path: "/v1/limits", key: keyOrders}); !strings.Contains(got.text, `"used":4,"remaining":6`) {
			t.Errorf("%d %s", got.status, got.text)
		}
	})
}

// The receivers of messages to topics are told behind the limits of messages; where nobody
// knows how many there were, that is left out and said.
func TestLimitsOfReceivers(t *testing.T) {
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	recipients := quota.NewRecipients(shardstest.Connect(t, redis.Addr()), "test", 0, map[string]int{"orders": 5000})
	if _, err := recipients.Spend(t.Context(), "orders", [16]byte{1}, 0, 0, 1200); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(o *Options) { o.Recipients = recipients })
	got := w.do(request{method: "GET", path: "/v1/limits", key: keyOrders})
	if want := `{"sender":"orders","shared":true,"limits":[{"name":"recipients","window":86400,"limit":5000,"used":1200,"remaining":3800,"reset":`; !strings.HasPrefix(got.text, want) {
		t.Errorf("%d %s, want %s", got.status, got.text, want)
	}
	if got.told("RateLimit") != "" {
		t.Errorf("a limit that stops no request is in the headers: %v", got.header)
	}
	const none = `,"limits":[]}` + "\n"
	if got := w.do(request{method: "GET", path: "/v1/limits", key: keySupport}); got.text != `{"sender":"support","shared":true`+none {
		t.Errorf("of a sender without: %s", got.text)
	}
	redis.Close()
	if got := w.do(request{method: "GET", path: "/v1/limits", key: keyOrders}); got.status != 200 || got.text != `{"sender":"orders","shared":false`+none {
		t.Errorf("without Redis: %d %s", got.status, got.text)
	}
}

// Who sends to many is warned when most of the day's receivers are used, and nobody of what is
// not known. On a busy machine Redis may take too long to say so, now and then.
func TestWarningOfReceivers(t *testing.T) {
	redis, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	recipients := quota.NewRecipients(shardstest.Connect(t, redis.Addr()), "test", 0, map[string]int{"orders": 1000})
	w := newWorld(t, func(o *Options) { o.Recipients = recipients })
	w.makeTopic("snow", `{"app": "shop", "service_type": "transactional"}`)
	spend := func(n int64) {
		if _, err := recipients.Spend(t.Context(), "orders", [16]byte{byte(n)}, int(n), 0, n); err != nil {
			t.Fatal(err)
		}
	}
	warning := func() string { return w.toSnow(`{"title": "x"}`).told("X-RateLimit-Warning") }
	spend(790)
	for range 10 {
		if got := warning(); got != "" {
			t.Fatalf("of 79 %% it warns: %s", got)
		}
	}
	spend(60)
	got := ""
	for tries := 0; got == "" && tries < 100; tries++ {
		got = warning()
	}
	if got != `"recipients";used=85` {
		t.Errorf("of 85 %% it says %q", got)
	}
	if got := w.do(request{method: "GET", path: "/v1/limits", key: keyOrders}).told("X-RateLimit-Warning"); got != `"recipients";used=85` {
		t.Errorf("asked, it says %q", got)
	}
	if got := w.post(plain).told("X-RateLimit-Warning"); got != "" {
		t.Errorf("of a message to one it says %q", got)
	}
	redis.Close()
	if a := w.toSnow(`{"title": "x"}`); a.status != http.StatusAccepted || a.told("X-RateLimit-Warning") != "" {
		t.Errorf("without Redis: %d %v", a.status, a.header)
	}
}

// Two limits that are nearly used up are in one warning.
func TestWarnings(t *testing.T) {
	h := http.Header{}
	tellLimits(h, []quota.Standing{{Policy: quota.Policy{Name: "minute", Limit: 10, Window: time.Minute}, Used: 9, Remaining: 1}})
	warnOf(h, &quota.Standing{Policy: quota.Policy{Name: "recipients", Limit: 100}, Used: 80})
	warnOf(h, &quota.Standing{Policy: quota.Policy{Name: "other", Limit: 100}, Used: 79})
	if got := h.Get("X-RateLimit-Warning"); got != `"minute";used=90, "recipients";used=80` {
		t.Errorf("it warns %q", got)
	}
}
