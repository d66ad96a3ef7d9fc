//go:build unix

// Command chaos breaks a whole fleet on purpose, on real servers that it
// starts itself, and says whether every promise was kept. `make chaos` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
)

// Exit statuses.
const (
	exitClean       = 0
	exitBroken      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// flags are what the command line says.
type flags struct {
	scenarios []*chaos.Scenario
	seed      uint64
	length    time.Duration
	mode      string
	rounds    int
	short     bool
	busy      bool
	json      bool
	plan      bool
	page      string
}

const usage = `Usage: chaos [flags] [scenario...]

Starts Kafka, Redis, Cassandra, a simulator of APNs and FCM, and a fleet of
workers, breaks them by a plan that the seed decides, and checks from the
outside whether every promise was kept. Without scenarios: all in full, or
with --minutes the mixed one.

Scenarios:
`

func parse(args []string, stderr io.Writer) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("chaos", flag.ContinueOnError)
	set.SetOutput(stderr)
	seed := set.String("seed", "", "of the plan of faults and of the users; empty = a new one")
	minutes := set.Float64("minutes", 0, "how long records come; 0 = the scenario's own length")
	set.StringVar(&f.mode, "mode", "", "delivery mode of the lane: at_least_once (default), effectively_once or at_most_once")
	set.IntVar(&f.rounds, "rounds", 1, "run everything this many times, each with another seed; 0 = until Ctrl-C or a broken promise")
	set.BoolVar(&f.short, "short", false, "the short length of each scenario, as in make test")
	set.BoolVar(&f.busy, "busy", false, "the machine has other work: limits of time are for what hangs only")
	set.BoolVar(&f.json, "json", false, "end standard output with one line of JSON for each run")
	set.BoolVar(&f.plan, "plan", false, "print the plan and do nothing")
	set.StringVar(&f.page, "page", "chaos.html", "write a page with a timeline of the last run here; empty = none")
	set.Usage = func() {
		fmt.Fprint(stderr, usage)
		for _, s := range chaos.Scenarios() {
			fmt.Fprintf(stderr, "  %-11s %s\n", s.Name, s.About)
		}
		fmt.Fprintln(stderr, "\nFlags:")
		set.PrintDefaults()
		fmt.Fprintln(stderr, "\nExit status: 0 clean, 1 a promise is broken or the run failed, 2 usage, 130 interrupted.")
	}
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	f.seed = rand.Uint64N(1_000_000_000)
	if *seed != "" {
		if _, err := fmt.Sscan(*seed, &f.seed); err != nil {
			return nil, fmt.Errorf("--seed: %q is no number", *seed)
		}
	}
	if *minutes < 0 || f.rounds < 0 {
		return nil, errors.New("--minutes and --rounds are not negative")
	}
	switch f.mode {
	case "", configs.AtLeastOnce, configs.EffectivelyOnce, configs.AtMostOnce:
	default:
		return nil, fmt.Errorf("--mode: %q is none", f.mode)
	}
	f.length = time.Duration(*minutes * float64(time.Minute))
	for _, name := range set.Args() {
		s, err := chaos.FindScenario(name)
		if err != nil {
			return nil, err
		}
		f.scenarios = append(f.scenarios, s)
	}
	switch all := chaos.Scenarios(); {
	case len(f.scenarios) > 0:
	case f.length > 0: // a length of one's own is for faults of every kind
		f.scenarios = all[:1]
	default:
		for _, s := range all {
			if s.Broken != "" {
				fmt.Fprintf(stderr, "chaos: %s is left out, as it is broken today: %s\n", s.Name, s.Broken)
				continue
			}
			f.scenarios = append(f.scenarios, s)
		}
	}
	return f, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	f, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitClean
	case err != nil:
		fmt.Fprintln(stderr, "chaos:", err)
		return exitUsage
	case f.plan:
		printPlans(f, stdout)
		return exitClean
	}
	dir, err := os.MkdirTemp("", "pushfleet-chaos-bin-")
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitBroken
	}
	defer os.RemoveAll(dir)
	programs, err := fleet.Build(ctx, dir, false, "pushworker", "pushgateway")
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitBroken
	}
	return runAll(ctx, f, programs, stdout, stderr)
}

// runAll runs the scenarios, round after round.
func runAll(ctx context.Context, f *flags, programs fleet.Programs, stdout, stderr io.Writer) int {
	status := exitClean
	for round := 0; f.rounds == 0 || round < f.rounds; round++ {
		for _, s := range f.scenarios {
			clean, err := one(ctx, f, s, f.seed+uint64(round), programs, stdout, stderr)
			if ctx.Err() != nil {
				fmt.Fprintln(stderr, "chaos: interrupted")
				return exitInterrupted
			}
			if err != nil {
				fmt.Fprintln(stderr, "chaos:", err)
			}
			if !clean {
				status = exitBroken
			}
		}
		if status != exitClean && f.rounds == 0 {
			break
		}
	}
	return status
}

// one runs a scenario and reports.
func one(ctx context.Context, f *flags, s *chaos.Scenario, seed uint64, programs fleet.Programs, stdout, stderr io.Writer) (clean bool, err error) {
	began := time.Now()
	r, err := chaos.Run(ctx, chaos.Options{Scenario: s, Seed: seed, Length: f.lengthOf(s), Mode: f.mode, Busy: f.busy, Programs: programs,
		Progress: func(format string, args ...any) {
			fmt.Fprintf(stderr, "%7.1fs %s: %s\n", time.Since(began).Seconds(), s.Name, fmt.Sprintf(format, args...))
		}})
	if err != nil {
		return false, err
	}
	version := commit()
	if err := r.WriteText(stdout, version); err != nil {
		return false, err
	}
	if f.page != "" {
		if err := writePage(f.pageOf(s), r, version); err != nil {
			return false, err
		}
	}
	if f.json {
		if err := r.WriteJSON(stdout, version); err != nil {
			return false, err
		}
	}
	return r.Report.Clean(), nil
}

func (f *flags) lengthOf(s *chaos.Scenario) time.Duration {
	switch {
	case f.length > 0:
		return f.length
	case f.short:
		return s.Short
	}
	return s.Full
}

// pageOf gives each scenario a page of its own where there are several.
func (f *flags) pageOf(s *chaos.Scenario) string {
	if len(f.scenarios) == 1 {
		return f.page
	}
	ext := filepath.Ext(f.page)
	return strings.TrimSuffix(f.page, ext) + "-" + s.Name + ext
}

func writePage(path string, r *chaos.Result, version string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(r.WritePage(out, version), out.Close())
}

func printPlans(f *flags, w io.Writer) {
	for _, s := range f.scenarios {
		fmt.Fprintf(w, "%s, seed %d, %v:\n", s.Name, f.seed, f.lengthOf(s))
		for _, a := range chaos.Plan(s, f.seed, f.lengthOf(s)) {
			fmt.Fprintln(w, " ", a)
		}
	}
}

// commit is what is tested, as git calls it.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
