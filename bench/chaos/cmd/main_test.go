//go:build unix

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos"
)

// What cannot be meant ends with status 2 and words, before anything starts.
func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		says   string
	}{
		{[]string{"--seed", "x"}, exitUsage, "is no number"},
		{[]string{"--seed", "-1"}, exitUsage, "is no number"},
		{[]string{"--mode", "twice"}, exitUsage, "is none"},
		{[]string{"--minutes", "-1"}, exitUsage, "not negative"},
		{[]string{"--nothing"}, exitUsage, "not defined"},
		{[]string{"earthquake"}, exitUsage, "there are [mixed kills"},
		{[]string{"--help"}, exitClean, "Exit status: 0 clean"},
	} {
		var out, errs bytes.Buffer
		if got := run(context.Background(), tt.args, &out, &errs); got != tt.status {
			t.Errorf("%v: status %d, want %d", tt.args, got, tt.status)
		}
		if !strings.Contains(errs.String(), tt.says) {
			t.Errorf("%v says %q, want %q in it", tt.args, errs.String(), tt.says)
		}
	}
}

// The plan of a seed can be read without doing it.
func TestPlan(t *testing.T) {
	print := func(args ...string) string {
		var out, errs bytes.Buffer
		if got := run(context.Background(), append([]string{"--plan"}, args...), &out, &errs); got != exitClean {
			t.Fatalf("status %d: %s", got, &errs)
		}
		return out.String()
	}
	a := print("--seed", "7", "--short", "kills")
	if strings.Count(a, "kill of worker") != 10 || a != print("--seed", "7", "--short", "kills") {
		t.Errorf("not ten kills, or others each time:\n%s", a)
	}
	if a == print("--seed", "8", "--short", "kills") {
		t.Error("another seed has the same plan")
	}
}

func TestLengthAndPage(t *testing.T) {
	s := chaos.Scenarios()[0]
	if got := (&flags{}).lengthOf(s); got != s.Full {
		t.Errorf("%v, want the full length", got)
	}
	if got := (&flags{short: true}).lengthOf(s); got != s.Short {
		t.Errorf("%v, want the short length", got)
	}
	if got := (&flags{short: true, length: time.Minute}).lengthOf(s); got != time.Minute {
		t.Errorf("%v, want what was asked for", got)
	}
	one := &flags{page: "a/b.html", scenarios: []*chaos.Scenario{s}}
	if got := one.pageOf(s); got != "a/b.html" {
		t.Error(got)
	}
	two := &flags{page: "a/b.html", scenarios: chaos.Scenarios()}
	if got := two.pageOf(s); got != "a/b-mixed.html" {
		t.Error(got)
	}
}
