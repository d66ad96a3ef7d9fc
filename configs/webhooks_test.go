package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who is told has a topic of its own that nobody else's is taken for, and time to be told.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	for text, path := range map[string]string{
		`{}`:                               "",
		`{senders: [orders, auth]}`:        "",
		`{senders: [-a]}`:                  "gateway.webhooks.senders[0]",
		`{senders: ["a/b"]}`:               "gateway.webhooks.senders[0]",
		`{senders: [a, a]}`:                "gateway.webhooks.senders[1]",
		`{senders: [a.b, a_b]}`:            "gateway.webhooks.senders[1]",
		`{senders: [a], timeout: 1m}`:      "gateway.webhooks.timeout",
		`{senders: [a], keep: 700h}`:       "gateway.webhooks.keep",
		`{keep: 700h, timeout: 1m}`:        "", // of nobody
		`{admin_listen: "127.0.0.1:9467"}`: "gateway.webhooks.admin_listen",
		`{admin_listen: "127.0.0.1:9464"}`: "gateway.webhooks.admin_listen",
		"{senders: [a]}\nlanes: [{name: x, topic: push.webhooks.a}]": "lanes[0].topic",
		"{senders: [a]}\nlanes: [{name: push.webhooks.a, topic: x}]": "lanes[0].name",
	} {
		ps := problemsOf(t, "gateway:\n  webhooks: "+text)
		if path == "" && len(ps) > 0 || path != "" && (len(ps) != 1 || ps[0].Path != path) {
			t.Errorf("%s: %v, want a problem of %q", text, ps, path)
		}
	}
}

// The process reads the endpoints' file, which is a secret; workers do not.
func TestCheckWebhooks(t *testing.T) {
	t.Parallel()
	c := Default()
	if err := c.CheckWebhooks(); err == nil || !strings.Contains(err.Error(), "gateway.webhooks.senders") || !strings.Contains(err.Error(), "gateway.webhooks.file") {
		t.Errorf("without anything: %v", err)
	}
	c.Gateway.Webhooks.Senders, c.Gateway.Webhooks.File = []string{"orders"}, filepath.Join(t.TempDir(), "webhooks.json")
	if err := os.WriteFile(c.Gateway.Webhooks.File, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.CheckWebhooks(); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others may read: %v", err)
	}
	if err := os.Chmod(c.Gateway.Webhooks.File, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.CheckWebhooks(); err != nil {
		t.Error(err)
	}
}
