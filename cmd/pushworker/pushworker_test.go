package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// TestDemoAccountsForEverything runs the whole fleet in this process.
func TestDemoAccountsForEverything(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out, progress bytes.Buffer
	if code := execute([]string{"demo", "-n", "5000", "--json"}, &out, &progress); code != exitDone {
		t.Fatalf("exit %d\n%s\n%s", code, &progress, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var r map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("the last line is no JSON: %v", err)
	}
	number := func(m map[string]any, key string) int {
		v, ok := m[key].(float64)
		if !ok {
			t.Errorf("key %q is missing", key)
		}
		return int(v)
	}
	sum := number(r, "delivered") + number(r, "expired") + number(r, "failed") + number(r, "dead_lettered")
	suppressed, _ := r["suppressed"].(map[string]any)
	for _, key := range []string{"duplicate", "opted_out", "limited", "no_device"} {
		if n := number(suppressed, key); n == 0 {
			t.Errorf("nothing is %s: the demo does not show it", key)
		} else {
			sum += n
		}
	}
	if number(r, "produced") != 5000 || sum != 5000 || number(r, "lost") != 0 || number(r, "sent_twice") != 0 {
		t.Errorf("%d records add up to %d: %s", number(r, "produced"), sum, lines[len(lines)-1])
	}
	for _, key := range []string{"pushes", "seconds", "notifications_per_second", "p50_ms", "p99_ms", "rss_mb"} {
		if v, ok := r[key].(float64); !ok || v <= 0 {
			t.Errorf("%s is %v", key, r[key])
		}
	}
	if !strings.Contains(progress.String(), "Every record is accounted for") {
		t.Errorf("no table on standard error:\n%s", &progress)
	}
}

// TestDemoInterrupted: Ctrl-C prints the table so far and exits 130.
func TestDemoInterrupted(t *testing.T) {
	var out bytes.Buffer
	stderr := &watched{look: "pushes answered", found: func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}}
	code := execute([]string{"demo", "-n", "200000"}, &out, stderr)
	if code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
	if s := out.String(); !strings.Contains(s, "unfinished") || strings.Contains(s, "DIFFERENCE") {
		t.Errorf("the table so far:\n%s", s)
	}
}

// watched calls found once when what is written contains look. It is written
// to by one goroutine.
type watched struct {
	bytes.Buffer
	look  string
	found func()
	done  bool
}

func (w *watched) Write(p []byte) (int, error) {
	if !w.done && bytes.Contains(p, []byte(w.look)) {
		w.done = true
		w.found()
	}
	return w.Buffer.Write(p)
}

// TestDemoFindsWhatIsWrong: the account is a check that can fail.
func TestDemoFindsWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		why string
		r   demoResult
	}{
		{"lost", demoResult{Lost: 1}},
		{"sent twice", demoResult{SentTwice: 1}},
		{"a device left out", demoResult{NotPushed: 1}},
		{"disagreement", demoResult{disagree: 1}},
	} {
		if tt.r.clean() {
			t.Errorf("%s counts as clean", tt.why)
		}
	}
	if !(&demoResult{}).clean() {
		t.Error("nothing wrong is not clean")
	}
}

func TestWrongUsageAndConfiguration(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct {
		why  string
		args []string
		want string // in what it says
	}{
		{"unknown command", []string{"walk"}, `unknown command "walk"`},
		{"unknown flag", []string{"demo", "--nope"}, "--nope"},
		{"no records", []string{"demo", "-n", "0"}, "--notifications"},
		{"no such file", []string{"run", "--config", filepath.Join(dir, "none.yaml")}, "none.yaml"},
		{"unknown key", []string{"run", "--config", write("unknown.yaml", "kafka: {brokerz: [a]}\n")}, "kafka.brokerz"},
		{"contradiction", []string{"registry", "--config", write("drain.yaml", "send: {deadline: 50s}\n")}, "send.drain"},
		{"nothing to send for", []string{"run", "--config", write("empty.yaml", "{}\n")}, "apps"},
		{"a key file that is not there", []string{"config", "check", "--config", write("key.yaml",
			"apps: [{name: shop, fcm: {project: example-shop, service_account_file: "+filepath.Join(dir, "none.json")+"}}]\n")}, "apps[0].fcm.service_account_file"},
	} {
		var out, errs bytes.Buffer
		if code := execute(tt.args, &out, &errs); code != exitUsage {
			t.Errorf("%s: exit %d, want %d", tt.why, code, exitUsage)
		}
		if !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%s: says %q, want %q in it", tt.why, errs.String(), tt.want)
		}
	}
}

func TestConfigPrint(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute([]string{"config", "print"}, &out, &errs); code != exitDone || !strings.Contains(out.String(), "session_timeout: 10s") {
		t.Errorf("exit %d, printed %q %q", code, out.String(), errs.String())
	}
}

func TestHealth(t *testing.T) {
	h := newHealth("redis", "kafka")
	server := httptest.NewServer(adminHandler(prometheus.NewRegistry(), h, false))
	defer server.Close()
	get := func(path string) (int, string) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "[-] redis: not yet") {
		t.Errorf("before anything was tried: %d %q", code, body)
	}
	h.set("redis", errors.New("dial tcp 127.0.0.1:6379: connection refused"))
	h.set("kafka", nil)
	if code, body := get("/readyz?verbose"); code != http.StatusServiceUnavailable || body != "[+] kafka ok\n[-] redis: dial tcp 127.0.0.1:6379: connection refused\n" {
		t.Errorf("with Redis away: %d %q", code, body)
	}
	if code, _ := get("/livez"); code != http.StatusOK {
		t.Errorf("a store that is away does not make the process dead: %d", code)
	}
	h.set("redis", nil)
	if code, body := get("/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("with everything there: %d %q", code, body)
	}
	if code, _ := get("/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("pprof is off and answers %d", code)
	}
}

// TestConnectGoesOn: a store that is away is tried until it is there, and
// named meanwhile.
func TestConnectGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		h := newHealth("redis")
		tries := 0
		err := connect(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), h, "redis", "redis-1:6379", func(context.Context) error {
			if tries++; tries < 10 {
				return errors.New("connection refused")
			}
			return nil
		})
		if err != nil || tries != 10 {
			t.Errorf("%v after %d tries", err, tries)
		}
		if ready, _ := h.report(); !ready {
			t.Error("connected and not ready")
		}
		if s := log.String(); strings.Count(s, "redis-1:6379") != 10 || !strings.Contains(s, "connection refused") {
			t.Errorf("the log does not say what and where:\n%s", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = connect(ctx, slog.New(slog.DiscardHandler), h, "redis", "x", func(context.Context) error { return errors.New("no") })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the end of ctx: %v", err)
		}
	})
}

func TestAccountOfLatencies(t *testing.T) {
	l := newLatencies()
	at := time.Now().Add(-100 * time.Millisecond)
	sent := &pipeline.Delivery{Item: &pipeline.Item{Timestamp: at}, Result: push.Result{Class: push.Delivered}}
	unsent := &pipeline.Delivery{Item: &pipeline.Item{Timestamp: at.Add(-time.Hour)}}
	l.observe([]*pipeline.Delivery{sent, unsent})
	if p := l.ms(99); p < 100 || p > 60_000 {
		t.Errorf("p99 %v ms; what was not sent must not count", p)
	}
}

// A worker and a registry run on one host by one file: each has its listener.
func TestWorkerAndRegistryShareAHost(t *testing.T) {
	c := configs.Default()
	if problems := c.Validate(); problems != nil {
		t.Fatal(problems)
	}
	// The ports of the defaults may be taken here: what matters is that they differ.
	ports := map[string]bool{}
	for _, at := range []string{c.Admin.Listen, c.Registry.Listen} {
		host, port, err := net.SplitHostPort(at)
		if err != nil || ports[port] {
			t.Errorf("%s: a second listener at port %s (%v)", at, port, err)
		}
		ports[port] = true
		stop, err := startAdmin("listen", net.JoinHostPort(host, "0"), false, slog.New(slog.DiscardHandler), newRegistry(), newHealth())
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	c.Admin.Listen, c.Registry.Listen = taken.Addr().String(), taken.Addr().String()
	for key, start := range map[string]func() error{
		"admin.listen":    func() error { return runWorker(t.Context(), c, io.Discard) },
		"registry.listen": func() error { return runRegistry(t.Context(), c, false, io.Discard) },
	} {
		if err := start(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s is taken: %v", key, err)
		}
	}
}
