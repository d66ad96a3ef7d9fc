package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// docs/plan.md has the examples of the help, each with what the program prints: no
// number in it is typed by hand. (sizing's tests work them out again.)
func TestPlanPageIsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile("(?s)```console\n\\$ pushctl (plan[^\n]*)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		exit, stdout, stderr := pushctl(t, t.Context(), strings.Fields(m[1])...)
		if short := strings.Contains(m[2], "\nSHORT: "); stdout != m[2] || stderr != "" || (exit == exitFailed) != short {
			t.Errorf("pushctl %s: exit status %d, printed\n%s%s\ndocs/plan.md has\n%s", m[1], exit, stdout, stderr, m[2])
		}
		shown["pushctl "+m[1]] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^  # .*\n  (pushctl plan .*)\n\n`).FindAllStringSubmatch(planExamples, -1) {
		if !shown[m[1]] {
			t.Errorf("docs/plan.md does not show %s", m[1])
		}
		delete(shown, m[1])
	}
	if len(shown) != 1 { // what is short
		t.Errorf("docs/plan.md shows besides the examples %v, want one that is short", slices.Collect(maps.Keys(shown)))
	}
}

func TestPlanRefuses(t *testing.T) {
	for _, tt := range []struct{ why, args, says string }{
		{"nothing is asked", "plan", "--rate: nothing is asked: tell the rate, or per-day, or users with per-user-day"},
		{"no number", "plan --rate many", `"many": want a number, such as 3.5M or 8G`},
		{"no unit", "plan --rate 1M --apns-latency 50", "with a unit, such as 50ms or 168h"},
		{"less than nothing", "plan --rate -5", "--rate: -5 is not possible: want 0 to 1,000,000,000"},
		{"more than all", "plan --rate 5 --busy 70", "--busy: 70 is not possible: want 0.01 to 1"},
		{"half a worker", "plan --rate 5 --workers 0.5", "--workers: 0.5 is not possible: want a whole number"},
		{"all zones lost", "plan --rate 5 --lost-zones 3", "--lost-zones: 3 of 3 zones: nothing would be left"},
		{"a peak below the average", "plan --rate 5 --per-day 1G", "--rate: 5/s is less than the day's average"},
		{"segments of nobody", "plan --rate 5 --segments 4", "--segments: a segment has a bit for each user: tell users"},
		{"an argument", "plan 5", "unknown command"},
	} {
		exit, stdout, stderr := pushctl(t, t.Context(), strings.Fields(tt.args)...)
		if exit != exitUsage || stdout != "" || !strings.Contains(stderr, tt.says) {
			t.Errorf("%s: exit status %d, printed %q, complained %q, want %q", tt.why, exit, stdout, stderr, tt.says)
		}
	}
}

// The answer for scripts has the same numbers, under keys that stay; no configuration is
// read for it.
func TestPlanForScripts(t *testing.T) {
	exit, stdout, stderr := pushctl(t, t.Context(), strings.Fields("plan --rate 3.5M --partitions 18 --lost-workers 0 -o json --config /nowhere.yaml")...)
	if exit != exitFailed || stderr != "" {
		t.Fatalf("exit status %d, want %d as the partitions do not suffice: %s", exit, exitFailed, stderr)
	}
	var plan map[string]any
	if err := json.Unmarshal([]byte(stdout), &plan); err != nil {
		t.Fatal(err)
	}
	keys := "apns_connections cassandra_bytes cassandra_cores cassandra_nodes cassandra_rows dedupe_capacity fcm_connections input kafka_bytes kafka_bytes_per_second lines " +
		"partition_rate partitions redis_bytes redis_collapse_bytes redis_filter_bytes redis_limit_bytes redis_nodes redis_primaries redis_user_bytes " +
		"segment_bytes short worker_cores worker_rate workers workers_left"
	if got := strings.Join(slices.Sorted(maps.Keys(plan)), " "); got != keys {
		t.Errorf("keys:\n got %s\nwant %s", got, keys)
	}
	if plan["workers"] != 18.0 || plan["partitions"] != 18.0 {
		t.Errorf("workers %v, partitions %v, want 18 of both", plan["workers"], plan["partitions"])
	}
	in, _ := plan["input"].(map[string]any)
	if in["rate"] != 3.5e6 || in["apns_latency_seconds"] != 0.05 || len(in) < 50 {
		t.Errorf("input: %v", in)
	}
	first := func(list string) string {
		all, _ := plan[list].([]any)
		if len(all) == 0 {
			return "none"
		}
		one, _ := all[0].(map[string]any)
		return strings.Join(slices.Sorted(maps.Keys(one)), " ")
	}
	if got := first("lines"); got != "how is part what" {
		t.Errorf("keys of a line: %s", got)
	}
	if got := first("short"); got != "have name need why" {
		t.Errorf("keys of a shortage: %s", got)
	}
}

// The help has every number of the input as a flag; --sources says where each default is from.
func TestPlanSources(t *testing.T) {
	_, help, _ := pushctl(t, t.Context(), "plan", "--help")
	exit, stdout, stderr := pushctl(t, t.Context(), "plan", "--sources", "-o", "json")
	var rows []parameterRow
	if err := json.Unmarshal([]byte(stdout), &rows); err != nil || exit != exitDone || stderr != "" {
		t.Fatalf("exit status %d, %v, %s", exit, err, stderr)
	}
	for _, r := range rows {
		if !strings.Contains(help, "--"+r.Name+" ") || r.Text == "" || r.Default != 0 && r.Source == "" {
			t.Errorf("%+v: not in the help, or without text or source", r)
		}
	}
	if exit, table, _ := pushctl(t, t.Context(), "plan", "--sources"); exit != exitDone || strings.Count(table, "\n") != len(rows)+1 {
		t.Errorf("exit status %d, table of --sources:\n%s", exit, table)
	}
}
