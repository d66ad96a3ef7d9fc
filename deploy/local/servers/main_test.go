//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
)

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		says   string // on standard error; on standard output where the status is 0
	}{
		{nil, exitUsage, "usage:"},
		{[]string{"--help"}, 0, "PUSHFLEET_TEST_KAFKA"},
		{[]string{"run", "--help"}, 0, ""},
		{[]string{"stop"}, exitUsage, `unknown command "stop"`},
		{[]string{"run"}, exitUsage, "no command"},
		{[]string{"run", "--no-such-flag"}, exitUsage, "no-such-flag"},
		{[]string{"run", "--", "no-such-command"}, exitFailed, "no-such-command"}, // before a server is started
		{[]string{"up", "now"}, exitUsage, `unexpected argument "now"`},
		{[]string{"archive", "now"}, exitUsage, `unexpected argument "now"`},
		{[]string{"up", "-o", "xml"}, exitUsage, `"xml"`},
	} {
		var stdout, stderr bytes.Buffer
		status := command(t.Context(), tt.args, &stdout, &stderr)
		said := stderr.String()
		if tt.status == 0 {
			said = stdout.String()
		}
		if status != tt.status || !strings.Contains(said, tt.says) {
			t.Errorf("servers %q: status %d, said %q; want %d, %q", tt.args, status, said, tt.status, tt.says)
		}
	}
}

func TestPrintAddresses(t *testing.T) {
	a := local.Addresses{Kafka: "127.0.0.1:1", Redis: "127.0.0.1:2", Cassandra: "127.0.0.1:3"}
	var out bytes.Buffer
	if err := printAddresses(a, "json", &out); err != nil {
		t.Fatal(err)
	}
	var got local.Addresses
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got != a {
		t.Errorf("%s: %v", out.String(), err)
	}
	out.Reset()
	if err := printAddresses(a, "text", &out); err != nil || !strings.Contains(out.String(), "export PUSHFLEET_TEST_REDIS=127.0.0.1:2\n") {
		t.Errorf("%s: %v", out.String(), err)
	}
}

func TestRunBesideServers(t *testing.T) {
	if os.Getenv(local.EnvServers) == "" {
		t.Skip("starts real servers: run make test, or `go run ./deploy/local/servers run -- go test ./deploy/local/servers`")
	}
	start, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	set, err := local.StartSet(start, local.SetOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	shell := func(ctx context.Context, script string) (int, string, error) {
		var out bytes.Buffer
		status, err := runBeside(ctx, set, "/bin/sh", []string{"sh", "-c", script}, &out, &out)
		return status, out.String(), err
	}

	if status, out, err := shell(t.Context(), "echo $PUSHFLEET_TEST_SERVERS $PUSHFLEET_TEST_KAFKA; exit 7"); status != 7 ||
		out != "1 "+set.Kafka.Addr()+"\n" || err != nil {
		t.Errorf("status %d, %q, %v; want 7 and Kafka's address", status, out, err)
	}
	if status, _, err := shell(t.Context(), "kill -9 $$"); status != 128+9 || err != nil {
		t.Errorf("a killed command: status %d, %v; want 137", status, err)
	}
	status, out, err := shell(t.Context(), "sleep 600 >/dev/null 2>&1 & echo $!")
	if status != 0 || err != nil {
		t.Errorf("a command that leaves something running: status %d, %v", status, err)
	}
	for deadline := time.Now().Add(time.Minute); running(strings.TrimSpace(out)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what a command left running still runs")
		}
	}

	interrupted, interrupt := context.WithCancel(t.Context())
	mark := filepath.Join(t.TempDir(), "started")
	go func() {
		defer interrupt()
		for t.Context().Err() == nil {
			if _, err := os.Stat(mark); err == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if status, out, err := shell(interrupted, "trap 'echo told; exit 3' TERM; >"+mark+"; while :; do sleep 0.1; done"); status != exitInterrupted ||
		!strings.Contains(out, "told\n") || err != nil {
		t.Errorf("an interrupted command: status %d, %q, %v; want 130 after SIGTERM", status, out, err)
	}

	if err := set.Redis.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := shell(t.Context(), "sleep 600"); err == nil || !strings.Contains(err.Error(), "redis has ended") {
		t.Errorf("a command whose Redis died: %v", err)
	}
}

// running says whether a process runs; one that has ended and that nobody has
// waited for does not.
func running(pid string) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z")
}
