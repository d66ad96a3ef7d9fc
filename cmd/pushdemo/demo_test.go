package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
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
	if s := progress.String(); !strings.Contains(s, "curl http://127.0.0.1:") || !strings.Contains(s, "its receipt says DELIVERED") {
		t.Errorf("nothing was sent through a gateway:\n%s", s)
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
	stderr := &watched{look: "pushes answered", found: func(string) {
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

// TestDemoServes tries the commands that the demo prints, and ends it by Ctrl-C.
func TestDemoServes(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	invited := make(chan string, 1) // gets one value, never closed
	stderr := &watched{look: "/openapi", found: func(text string) { invited <- text }}
	var out bytes.Buffer
	ended := make(chan int, 1) // gets one value, never closed
	go func() { ended <- run(ctx, []string{"-n", "1000", "--serve", "--listen", "127.0.0.1:0"}, &out, stderr) }()
	var text string
	select {
	case text = <-invited:
	case code := <-ended:
		t.Fatalf("exit %d before it served\n%s", code, stderr)
	}
	sent := invitation.FindStringSubmatch(text)
	if sent == nil {
		t.Fatalf("no command to try:\n%s", text)
	}
	at, key, body := sent[1], sent[2], sent[3]
	receipt := struct{ Receipt, Status string }{}
	ask(t, "POST", at+"/v1/messages", key, body, http.StatusAccepted, &receipt)
	for receipt.Status != "DELIVERED" { // as long as the test may take
		if receipt.Status != "PENDING" && receipt.Status != "SENDING" {
			t.Fatalf("it ended %s", receipt.Status)
		}
		ask(t, "GET", at+"/v1/receipts/"+receipt.Receipt, key, "", http.StatusOK, &receipt)
	}
	interrupt()
	if code := <-ended; code != exitDone {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// invitation is the command that sends: address, key, body.
var invitation = regexp.MustCompile(`curl -i (http://\S+)/v1/messages -H 'Authorization: (Bearer [A-Z2-7]+)' -H 'Content-Type: application/json' \\\n +-d '(.+)'`)

// ask sends one request as curl would, and reads its answer into a value.
func ask(t *testing.T, method, url, key, body string, want int, into any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	req.Header.Set("Authorization", key)
	req.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != want {
		t.Fatalf("%s %s: %d %s, %v", method, url, r.StatusCode, text, err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// A gateway that cannot listen ends the demo, and says where it wanted to.
func TestDemoCannotServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-n", "100", "--serve", "--listen", l.Addr().String()}, &out, &errs)
	if code != exitFailed || !strings.Contains(errs.String(), l.Addr().String()+": bind: address already in use") {
		t.Errorf("exit %d\n%s", code, &errs)
	}
}

// watched calls found once, with the first text written to it that contains look. Not
// safe for concurrent use.
type watched struct {
	bytes.Buffer
	look  string
	found func(text string)
	done  bool
}

func (w *watched) Write(p []byte) (int, error) {
	if !w.done && bytes.Contains(p, []byte(w.look)) {
		w.done = true
		w.found(string(p))
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
	sent := &pipeline.Delivery{Item: &pipeline.Item{Timestamp: push.At(at)}, Result: push.Result{Class: push.Delivered}}
	unsent := &pipeline.Delivery{Item: &pipeline.Item{Timestamp: push.At(at.Add(-time.Hour))}}
	l.observe([]*pipeline.Delivery{sent, unsent})
	if p := l.ms(99); p < 100 || p > 60_000 {
		t.Errorf("p99 %v ms; unsent deliveries must not count", p)
	}
}

func TestWrongUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"--nope": {"--nope"}, "unknown command": {"run"},
		"--notifications": {"-n", "0"}, "--latency": {"--latency", "1m"}, "--listen": {"--serve", "--listen", "8088"},
	} {
		var out, errs bytes.Buffer
		if status := run(t.Context(), args, &out, &errs); status != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: exit %d, says %q; want %d and %q", args, status, &errs, exitUsage, want)
		}
	}
}
