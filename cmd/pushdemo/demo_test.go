package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// TestDemoAccountsForEverything runs the whole fleet in this process.
func TestDemoAccountsForEverything(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out, progress bytes.Buffer
	if code := run(t.Context(), []string{"-n", "5000", "--json"}, &out, &progress); code != exitDone {
		t.Fatalf("exit %d\n%s\n%s", code, &progress, &out)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var r map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("the last line is not JSON: %v", err)
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
			t.Errorf("no record is %s, so the demo does not show it", key)
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

// TestDemoInterrupted: after Ctrl-C the demo prints the table so far and exits
// with 130.
func TestDemoInterrupted(t *testing.T) {
	var out bytes.Buffer
	stderr := &watched{look: "pushes answered", found: func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
			t.Error(err)
		}
	}}
	ctx, stop := terminal.UntilSignal(t.Context())
	defer stop()
	code := run(ctx, []string{"-n", "200000"}, &out, stderr)
	if code != exitInterrupted {
		t.Errorf("exit %d, want %d", code, exitInterrupted)
	}
	if s := out.String(); !strings.Contains(s, "unfinished") || strings.Contains(s, "DIFFERENCE") {
		t.Errorf("the table so far:\n%s", s)
	}
}

// watched calls found once, when it is written text that contains look. Not safe
// for concurrent use.
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

// TestClean: each kind of error makes a result unclean.
func TestClean(t *testing.T) {
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
		t.Error("a result without errors is not clean")
	}
}

func TestAccountOfLatencies(t *testing.T) {
	l := newLatencies()
	at := time.Now().Add(-100 * time.Millisecond)
	sent := &pipeline.Delivery{Item: &pipeline.Item{Timestamp: at}, Result: push.Result{Class: push.Delivered}}
	unsent := &pipeline.Delivery{Item: &pipeline.Item{Timestamp: at.Add(-time.Hour)}}
	l.observe([]*pipeline.Delivery{sent, unsent})
	if p := l.ms(99); p < 100 || p > 60_000 {
		t.Errorf("p99 %v ms; unsent deliveries must not count", p)
	}
}

func TestWrongUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--nope": {"--nope"}, "unknown command": {"run"},
		"--notifications": {"-n", "0"}, "--latency": {"--latency", "1m"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), args, &out, &errs); status != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: exit %d, says %q; want %d and %q", args, status, &errs, exitUsage, want)
		}
	}
}
