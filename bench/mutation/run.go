package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	memoryLimit = 8 << 30 // of addresses, which Go reserves generously
	// A mutant's tests may take this many times what they take without a
	// change, and grace besides: other work comes and goes.
	slower = 4
	grace  = 20 * time.Second
	// Fast tests go first, as most mutants fall to any of them.
	fast = 2 * time.Second
)

// runner mutates one package.
type runner struct {
	root, dir, scratch string   // the module's, the package's, ours
	pkg, name          string   // ./dedupe, dedupe
	binary             string   // of its tests
	flags              []string // for each run of it
	skip               *regexp.Regexp
	out                io.Writer
	accepted           accepted
}

// outcome is what became of one mutant.
type outcome struct {
	mutant
	Killed bool `json:"killed"`
	// By the test that did; empty for a survivor.
	By string `json:"by,omitempty"`
	// How many tests reach it, and why a survivor may live.
	Reached int     `json:"reached"`
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
}

// summary is what a run has found.
type summary struct {
	Package   string    `json:"package"`
	Seed      uint64    `json:"seed"`
	Sites     int       `json:"sites"` // among which was drawn
	Sampled   int       `json:"sampled"`
	Killed    int       `json:"killed"`
	Percent   float64   `json:"percent"`
	Skipped   []string  `json:"skipped"` // tests that skip themselves, as without servers
	Survivors []outcome `json:"survivors"`
}

// mutate draws at most n mutants by the seed and judges each.
func (r *runner) mutate(ctx context.Context, seed uint64, n int) (summary, error) {
	files, all, err := r.sites(ctx)
	if err != nil {
		return summary{}, err
	}
	random := rand.New(rand.NewPCG(seed, seed))
	drawn := slices.Clone(all)
	random.Shuffle(len(drawn), func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	sample, err := r.build(ctx, files, drawn, n)
	if err != nil {
		return summary{}, err
	}
	fmt.Fprintf(r.out, "%s: %d mutants of %d; running each test alone\n", r.pkg, len(sample), len(all))
	tests, err := r.packageTests(ctx)
	if err != nil {
		return summary{}, err
	}
	sum := summary{Package: r.pkg, Seed: seed, Sites: len(all), Skipped: skipped(tests), Survivors: []outcome{}}
	if len(sum.Skipped) > 0 {
		fmt.Fprintf(r.out, "%s: %d tests skip themselves here, so that what only they see survives: %s\n", r.pkg, len(sum.Skipped), strings.Join(sum.Skipped, ", "))
	}
	for i, m := range sample {
		began := time.Now()
		result, err := r.judge(ctx, i, m, tests)
		if err != nil {
			return sum, err
		}
		result.Seconds = time.Since(began).Seconds()
		sum.Sampled++
		if result.Killed {
			sum.Killed++
		} else {
			result.Reason = r.accepted.reason(m)
			sum.Survivors = append(sum.Survivors, result)
		}
		r.print(sum, len(sample), result)
	}
	if sum.Sampled > 0 {
		sum.Percent = 100 * float64(sum.Killed) / float64(sum.Sampled)
	}
	return sum, nil
}

// judge runs the tests that reach a mutant, fast ones first.
func (r *runner) judge(ctx context.Context, number int, m mutant, tests []testCase) (outcome, error) {
	tests = slices.DeleteFunc(slices.Clone(tests), func(t testCase) bool { return !t.reaches[number] })
	result := outcome{mutant: m, Reached: len(tests)}
	for len(tests) > 0 {
		names, took := []string{tests[0].name}, tests[0].took
		for _, t := range tests[1:] {
			if took+t.took > fast {
				break
			}
			names, took = append(names, t.name), took+t.took
		}
		tests = tests[len(names):]
		out, err := r.try(ctx, number, names, slower*took+grace)
		if ctx.Err() != nil {
			return result, ctx.Err()
		}
		if err != nil {
			result.Killed, result.By = true, killer(out)
			return result, nil
		}
	}
	return result, nil
}

// try runs tests with one mutant acting. That the time is over says something
// of the mutant only if it is enough without it: on a machine with other work
// it may not be.
func (r *runner) try(ctx context.Context, number int, names []string, limit time.Duration) ([]byte, error) {
	args := []string{"-test.failfast", "-test.run", "^(" + strings.Join(names, "|") + ")$"}
	for {
		out, err := r.run(ctx, limit, []string{"MUTATION_ACTIVE=" + strconv.Itoa(number)}, args...)
		if err == nil || !timedOut(out) || ctx.Err() != nil {
			return out, err
		}
		if without, _ := r.run(ctx, limit, nil, args...); !timedOut(without) {
			return out, err
		}
		limit *= 2
	}
}

// print says what became of a mutant.
func (r *runner) print(sum summary, n int, o outcome) {
	said := "killed by " + o.By
	switch {
	case o.Reason != "":
		said = "SURVIVED, accepted"
	case !o.Killed && o.Reached == 0:
		said = "SURVIVED: no test reaches it"
	case !o.Killed:
		said = fmt.Sprintf("SURVIVED %d tests", o.Reached)
	}
	fmt.Fprintf(r.out, "%2d/%d %s:%d %s, %.0f s: %s\n", sum.Sampled, n, o.File, o.Line, o.Kind, o.Seconds, said)
}
