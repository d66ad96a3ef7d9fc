//go:build linux

package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/worker"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func TestWorkerUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"10,000":       {"--embedded", "--notifications", "10"},
		"commit log":   {"--worker", os.Args[0], "--commit-log", "group"},
		"no Cassandra": {"--embedded", "--commit-log", "batch"},
		"limit":        {"--embedded", "--limits", "-1"},
		"confirmed":    {"--embedded", "--confirms", "2"},
		"--worker":     {"--worker", "/does/not/exist"},
		"unknown flag": {"--warmup", "1"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), append([]string{"worker"}, args...), strings.NewReader(""), &stdout, &stderr)
		if exit != exitUsage || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%q: status %d, %q, %q", args, exit, stderr.String(), stdout.String())
		}
	}
}

// A server that is asked for and unknown says so.
func TestServeUsage(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if exit := run(t.Context(), []string{serveCommand, "telex", "x"}, strings.NewReader(""), &stdout, &stderr); exit != exitFailed || !strings.Contains(stderr.String(), `"telex"`) {
		t.Errorf("status %d, %q", exit, stderr.String())
	}
}

// The table has the parts, the largest first, and the settings of the run.
func TestWorkerAnswer(t *testing.T) {
	share, p99, ratio, rate := 0.101, 12.34, 0.3333, 1.256
	r := &worker.Result{Notifications: 400_000, Seconds: 10, Rate: 40_000, WorkerCPU: 18, Parts: map[string]float64{"gc": 1.5, "send": 6, "poll": 1.5},
		WorkerRatio: &ratio, RateRatio: &rate, Allocations: 11.7, AllocationOwners: map[string]float64{"ours": 4.2}, CriticalP50: &p99, CriticalP99: &p99, RowsPerBatch: &p99,
		CommitLog: worker.Batch, PackedRows: true, KafkaReplication: 1, KeyspaceReplication: "class SimpleStrategy, replication_factor 1",
		LimitRules: 3, Confirmed: &share, Duplicates: 0.01, Checked: 600_000, Cores: 2, Go: "go1"}
	var stdout bytes.Buffer
	b := newBench(strings.NewReader(""), &stdout, &stdout)
	b.format = terminal.FormatTable
	if err := b.show(explainWorker(r)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"notifications/s 40000", "worker CPU us 18.0\nsend 6.00\ngc 1.50\npoll 1.50\nof apns2's CPU 0.333\nnotifications/s to apns2's pushes/s 1.26", "Cassandra CPU us -", "allocations 11.70\nours 4.20",
		"rows per status batch 12.3", "one-time passwords p50, p99 ms 12.3, 12.3\nwithout a backlog -, -",
		"commit log batch", "packed rows true", "replication of topics 1", "replication of the keyspace class SimpleStrategy, replication_factor 1",
		"limit rules 3", "confirmed by a status read 10.1 %", "duplicates 1.0 %", "pushes and rows checked 600000",
	} {
		if !strings.Contains(spaced(stdout.String()), "\n"+want+"\n") {
			t.Errorf("%q is not in\n%s", want, stdout.String())
		}
	}
	if !strings.HasPrefix(stdout.String(), "400000 notifications in 10.0 s with real servers on 2 cores, go1;") || percent(nil) != "-" {
		t.Errorf("it begins %.80q; an unknown share is %q", stdout.String(), percent(nil))
	}
}

// spaced is a table with one space between its columns.
func spaced(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n") + "\n"
}
