//go:build linux

package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/whole"
	"github.com/pushfleet/pushfleet/cmd/terminal"
)

func TestWholeUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"10,000":     {"--notifications", "10"},
		"commit log": {"--commit-log", "group"},
		"limit":      {"--limits", "-1"},
		"confirmed":  {"--confirms", "2"},
		"--worker":   {"--worker", "/does/not/exist"},
	} {
		var stdout, stderr bytes.Buffer
		exit := run(t.Context(), append([]string{"whole"}, args...), strings.NewReader(""), &stdout, &stderr)
		if exit != exitUsage || !strings.Contains(stderr.String(), want) || stdout.Len() > 0 {
			t.Errorf("%q: status %d, %q, %q", args, exit, stderr.String(), stdout.String())
		}
	}
}

// The table has the settings of the run.
func TestWholeAnswer(t *testing.T) {
	share := 0.101
	r := &whole.Result{Notifications: 400_000, Seconds: 10, Rate: 40_000, CommitLog: whole.Batch, KafkaReplication: 1,
		KeyspaceReplication: "class SimpleStrategy, replication_factor 1", LimitRules: 3, Confirmed: &share, Checked: 600_000, Cores: 2, Go: "go1"}
	var stdout bytes.Buffer
	b := newBench(strings.NewReader(""), &stdout, &stdout)
	b.format = terminal.FormatTable
	if err := b.show(explainWhole(r)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"commit log batch", "replication of topics 1", "replication of the keyspace class SimpleStrategy, replication_factor 1",
		"limit rules 3", "confirmed by a status read 10.1 %", "pushes and rows checked 600000",
	} {
		if !strings.Contains(spaced(stdout.String()), "\n"+want+"\n") {
			t.Errorf("%q is not in\n%s", want, stdout.String())
		}
	}
	if percent(nil) != "-" {
		t.Errorf("an unknown share is %q", percent(nil))
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
