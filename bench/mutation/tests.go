package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// testCase is one top-level test of the package, as it went without a change.
type testCase struct {
	name    string
	took    time.Duration
	reaches map[int]bool // numbers of mutants
	skipped bool         // it says that it did nothing here
}

var testName = regexp.MustCompile(`^(Test|Fuzz|Example)`)

// packageTests runs each test of the package alone, with no mutant acting, and
// says how long it takes and which mutants it gets to. It fails where a test
// fails: nothing could be learnt from it.
func (r *runner) packageTests(ctx context.Context) ([]testCase, error) {
	list, err := r.run(ctx, time.Minute, nil, "-test.list", testName.String())
	if err != nil {
		return nil, fmt.Errorf("listing the tests: %w\n%s", err, list)
	}
	if usage, _ := r.run(ctx, time.Minute, nil, "-help"); bytes.Contains(usage, []byte("rapid.nofailfile")) {
		r.flags = []string{"-rapid.nofailfile", "-rapid.shrinktime=0s"} // what fails here is no example to keep
	}
	report := filepath.Join(r.scratch, "reached")
	var tests []testCase
	for _, name := range strings.Fields(string(list)) {
		if !testName.MatchString(name) || r.skip != nil && r.skip.MatchString(name) {
			continue
		}
		began := time.Now()
		out, err := r.run(ctx, 10*time.Minute, []string{"MUTATION_REACHED=" + report}, "-test.v", "-test.run", "^"+name+"$")
		if err != nil {
			return nil, fmt.Errorf("%s fails without a change: %w\n%s", name, err, out[max(0, len(out)-2000):])
		}
		t := testCase{name: name, took: time.Since(began), reaches: map[int]bool{}, skipped: bytes.Contains(out, []byte("--- SKIP: "+name+" ("))}
		numbers, err := os.ReadFile(report)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, number := range strings.Fields(string(numbers)) {
			n, err := strconv.Atoi(number)
			if err != nil {
				return nil, fmt.Errorf("what %s reaches: %w", name, err)
			}
			t.reaches[n] = true
		}
		_ = os.Remove(report) // it may not be there
		tests = append(tests, t)
	}
	if len(tests) == 0 {
		return nil, fmt.Errorf("%s has no tests", r.pkg)
	}
	slices.SortStableFunc(tests, func(a, b testCase) int { return int(a.took - b.took) })
	return tests, nil
}

// skipped names the tests that skip themselves.
func skipped(tests []testCase) []string {
	names := []string{}
	for _, t := range tests {
		if t.skipped {
			names = append(names, t.name)
		}
	}
	return names
}

// failed finds the first test that a test binary's output says has failed, or
// that was running when the time was over.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^\s+(Test\S+) \(`)

// killer names what noticed a mutant, from what its tests printed.
func killer(out []byte) string {
	by := "the end of its process"
	if strings.Contains(string(out), "\npanic: ") {
		by = "a panic"
	}
	if m := failed.FindSubmatch(out); m != nil {
		by = string(m[1]) + string(m[2])
	}
	if timedOut(out) {
		by = "time-out of " + by
	}
	return by
}

func timedOut(out []byte) bool { return bytes.Contains(out, []byte("panic: test timed out")) }

// goTool runs the go command in the module.
func (r *runner) goTool(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.root
	return cmd.CombinedOutput()
}

// run runs the test binary where go test would, for at most limit. Its memory
// is bounded, as a mutant may take all there is.
func (r *runner) run(ctx context.Context, limit time.Duration, env []string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	args = append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, memoryLimit/1024), r.binary, "-test.timeout=" + limit.String()}, slices.Concat(r.flags, args)...)
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = r.dir
	cmd.Env = append(append(os.Environ(), "TMPDIR="+r.scratch), env...)
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}
