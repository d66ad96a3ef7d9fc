package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/push"
)

// What workers told is printed once, as a table and as JSON.
func TestTop(t *testing.T) {
	f := startFleet(t, true)
	told(f)
	var s dashboard.Snapshot
	f.decode(&s, "top", "--once")
	if s.Outcomes.Total != 6 || len(s.Lanes) != 3 || s.OffsetsAt.IsZero() || !s.Ready {
		t.Errorf("%+v", s.Outcomes)
	}
	f.decode(&s, "top", "--once", "--lane", "critical")
	if s.Outcomes.Total != 1 || s.Outcomes.Rows[0].Reason != "wrong_type" {
		t.Errorf("of a lane: %+v", s.Outcomes)
	}
	out := f.ok("top", "--once")
	for _, want := range []string{"pushfleet at ", "LANE ", "transactional  0.0", "6 since ", "FAILED         transactional  shop  promo  fcm       UNREGISTERED  1", "~ no worker tells its state"} {
		if !strings.Contains(out, want) {
			t.Errorf("printed\n%s\nwant %q in it", out, want)
		}
	}
	if exit, _, stderr := f.run("", "top"); exit != exitUsage || !strings.Contains(stderr, "no terminal") {
		t.Errorf("without a terminal: %d, %s", exit, stderr)
	}
}

// The screen says what waits beside the lanes' own topics, what limits did, and how near
// senders are to theirs; where there is nothing to say, it has no such table.
func TestTopTellsOfLimits(t *testing.T) {
	s := dashboard.Snapshot{Topics: []dashboard.Topic{{Lane: "bulk", Kind: "retry", Topic: "bulk.retry.1m", Waiting: 7}, {Lane: "bulk", Kind: "hold", Topic: "bulk.hold"}}}
	s.Limits.Rules = []dashboard.Rule{{Rule: "per-day", Stopped: 12, PutOff: 3, Users1h: 9}}
	s.Limits.Senders = []dashboard.Sender{
		{Sender: "orders", Rule: "an-hour", Limit: 1000, Window: 3600, Share: 1.2, Wait: 90, Limited: 5, Minutes: []int{10, 130, 120}},
		{Sender: "news", Rule: "an-hour", Limit: 1000, Window: 3600, Share: 0.5, Minutes: []int{50}},
	}
	got := topText(&s)
	for _, want := range []string{
		"bulk.retry.1m  retry  7\n",
		"per-day  12       3        0              9\n",
		"orders  an-hour  120 %  130 %             1000 in 1h0m0s  5        1m30s\n",
		"news    an-hour  50 %   50 %              1000 in 1h0m0s  0        -\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("printed\n%s\nwant %q in it", got, want)
		}
	}
	if strings.Contains(got, "bulk.hold") {
		t.Errorf("an empty topic is printed\n%s", got)
	}
	if got := topText(&dashboard.Snapshot{}); strings.Contains(got, "SENDER") || strings.Contains(got, "LIMIT") || strings.Contains(got, "TOPIC") {
		t.Errorf("of nothing it prints\n%s", got)
	}
}

// A screen has no more lines and columns than there is room for, and no controls.
func TestScreenful(t *testing.T) {
	if got, want := screenful("one two\n\x1b[2Jx\nthree\n", 5, 2), "one t\x1b[K\r\n?[2Jx\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// printed takes what a command prints, up to the first line.
type printed struct {
	lines chan string // buffered for the one line that is read; never closed
}

func (p *printed) Write(text []byte) (int, error) {
	select {
	case p.lines <- strings.TrimSpace(string(text)):
	default:
	}
	return len(text), nil
}

// The dashboard is served until it is interrupted, with the look-ups of pushctl.
func TestDashboard(t *testing.T) {
	f := startFleet(t, true)
	f.configure(func(text string) string { return text + limited })
	f.startRegistry()
	told(f)
	exit, _, stderr := f.run("a-token:of-a_device\n", "devices", "add", "--user", "ada", "--app", "shop", "--platform", "fcm", "--token-file", "-")
	if exit != exitDone {
		t.Fatal(stderr)
	}
	f.until([]string{"fcm"}, "devices", "get", "ada")
	f.spend("ada", "n1", "news")
	if err := f.status.Write(t.Context(), []push.Row{{ID: "n-1", Device: "d", State: push.StateFailed, Platform: push.FCM, Reason: "UNREGISTERED", At: time.Now()}}); err != nil {
		t.Fatal(err)
	}

	f.deadLetter(dead{id: "n-dead"})

	ctx, stop := context.WithCancel(t.Context())
	out := &printed{lines: make(chan string, 1)}
	ended := make(chan int, 1) // gets the exit status
	go func() {
		a := newApp(strings.NewReader(""), out, io.Discard)
		defer a.close()
		a.environ, a.store, a.connectTime = nil, f.reader, f.patience
		ended <- a.end(ctx, a.execute(ctx, []string{"dashboard", "--listen", "127.0.0.1:0", "--config", f.config}))
	}()
	defer func() {
		stop()
		if exit := <-ended; exit != exitInterrupted {
			t.Errorf("exit status %d", exit)
		}
	}()
	var at string
	select {
	case at = <-out.lines:
	case <-time.After(time.Minute):
		t.Fatal("nothing is served")
	}
	get := func(path string, into any) {
		t.Helper()
		r, err := http.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		if err := json.NewDecoder(r.Body).Decode(into); err != nil {
			t.Fatalf("%s: %d, %v", path, r.StatusCode, err)
		}
	}
	var n explain.Notification
	if get("lookup?id=n-1", &n); n.Outcome != "FAILED" || !strings.Contains(n.Devices[0].Meaning, "no longer on the device") {
		t.Errorf("a notification: %+v", n)
	}
	var letters json.RawMessage
	if get("letters?lane=transactional", &letters); !strings.Contains(string(letters), `"id":"n-dead"`) || !strings.Contains(string(letters), `"acts":"nobody"`) || strings.Contains(string(letters), secretText) {
		t.Errorf("dead letters: %s", letters)
	}
	says := func(query string, wants ...string) {
		t.Helper()
		var text json.RawMessage
		get("lookup?"+query, &text)
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: %s, want %s", query, text, want)
			}
		}
	}
	says("user=ada&type=news", `"step":"device","says":"fcm `, "the user forbids nothing", `limit news-a-day","says":"1 of 1 used`, "SUPPRESSED: limited:news-a-day")
	says("user=bob", "the user has no device with this app", "SUPPRESSED: no_device")
	says("user=ada&app=none", "there is no app")
	f.ok("prefs", "set", "ada", "--opt-out-all")
	f.until([]string{"yes"}, "prefs", "get", "ada")
	says("user=ada", "opted out of everything", "SUPPRESSED: opted_out_all")
	says("user=ada&message="+url.QueryEscape("not-an-id"), "must be a UUIDv7")
	says("user=ada&message=0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", `"outcome":"NONE"`)
}

// Other machines need a key and TLS.
func TestDashboardIsGuarded(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	for content, want := range map[string]string{"": "has no key", "short\n": "too short", "a-key-of-more-than-24-characters\n": "plain text"} {
		if err := os.WriteFile(key, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		f := dashboardFlags{listen: ":8095", keyFile: key, insecure: strings.HasPrefix(content, "short")}
		if _, _, err := f.access(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", content, err, want)
		}
	}
	if err := os.WriteFile(key, []byte("a-key-of-more-than-24-characters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (&dashboardFlags{listen: "127.0.0.1:1", adminKeyFile: key}).access(); err != nil {
		t.Error(err)
	}
	for _, f := range []dashboardFlags{{listen: "127.0.0.1:1", keyFile: key, adminKeyFile: key}, {listen: "0.0.0.0:1", adminKeyFile: key, insecure: true}, {listen: "0.0.0.0:1"}, {listen: "127.0.0.1:1", cert: "none"}, {listen: "127.0.0.1:1", keyFile: "none"}} {
		if _, _, err := f.access(); exitStatus(t.Context(), err) != exitUsage {
			t.Errorf("%+v: %v", f, err)
		}
	}
	if _, _, err := (&dashboardFlags{listen: "127.0.0.1:1"}).access(); err != nil {
		t.Error(err)
	}
}
