package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/kafka"
)

// What is a dead letter of webhooks goes back to the topic of its sender, when it is asked
// for by --yes.
func TestWebhooksRedeliver(t *testing.T) {
	f := startFleet(t, true)
	if exit, _, stderr := f.run("", "webhooks", "redeliver"); exit != exitUsage || !strings.Contains(stderr, "gateway.webhooks.senders") {
		t.Errorf("nobody is told: %d %s", exit, stderr)
	}
	f.configure(func(text string) string { return text + "gateway: {webhooks: {senders: [orders, auth]}}\n" })
	if exit, _, stderr := f.run("", "webhooks", "redeliver"); exit == 0 || !strings.Contains(stderr, kafka.DeadWebhooksTopic) {
		t.Errorf("without the topics: %d %s", exit, stderr)
	}
	f.create(kafka.WebhooksTopic("orders"), kafka.WebhooksTopic("auth"), kafka.DeadWebhooksTopic)
	dead := func(sender, reason, value string) kafka.Record {
		return kafka.Record{Key: []byte("n1"), Value: []byte(value), Headers: map[string]string{"sender": sender, "reason": reason, "detail": "500", "made": "2026-11-26T07:00:00Z"}}
	}
	f.append(kafka.DeadWebhooksTopic, dead("orders", kafka.TopicRefused, `{"a":1}`), dead("auth", "refused", `{"b":1}`), dead("former", "refused", `{"c":1}`), kafka.Record{Value: []byte("{}")})
	redeliver := func(args ...string) (v dlq.Redelivered) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.ok(append([]string{"webhooks", "redeliver", "-o", "json"}, args...)...)), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := redeliver(); !v.DryRun || v.Matched != 4 || v.Redelivered != 2 || v.Skipped[dlq.SkipUntold] != 2 || v.Reasons[kafka.TopicRefused] != 1 {
		t.Errorf("a dry run: %+v", v)
	}
	if got := f.records(kafka.WebhooksTopic("orders")); len(got) > 0 {
		t.Fatalf("a dry run wrote %v", got)
	}
	if v := redeliver("--until", time.Now().Add(-time.Hour).Format(time.RFC3339)); v.Matched != 0 {
		t.Errorf("of an hour ago: %+v", v)
	}
	if v := redeliver("--sender", "orders", "--since", "1h", "--yes"); v.DryRun || v.Redelivered != 1 || v.Senders["orders"] != 1 {
		t.Errorf("redelivered %+v", v)
	}
	got := f.records(kafka.WebhooksTopic("orders"))
	if len(got) != 1 || string(got[0].Key) != "n1" || string(got[0].Value) != `{"a":1}` || len(got[0].Headers) > 0 {
		t.Errorf("orders got %v", got)
	}
	if got := f.records(kafka.WebhooksTopic("auth")); len(got) > 0 {
		t.Errorf("auth got %v", got)
	}
	if out := f.ok("webhooks", "redeliver", "--reason", "refused"); !strings.Contains(out, "dry run: 1 of 2 would be redelivered; --yes does it") || !strings.Contains(out, "1 left out: sender not told") {
		t.Errorf("said %s", out)
	}
	for _, bad := range [][]string{{"--rate", "0"}, {"--limit", "-1"}, {"--sender", "nobody"}, {"--since", "1h", "--until", "2h"}} {
		if exit, _, stderr := f.run("", append([]string{"webhooks", "redeliver"}, bad...)...); exit != exitUsage || !strings.Contains(stderr, bad[0]) {
			t.Errorf("%v: %d %s", bad, exit, stderr)
		}
	}
}
