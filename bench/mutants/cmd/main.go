//go:build unix

// Command cmd plants every bug of bench/mutants into the worker, one after
// another, and prints who caught it. It needs nothing but Go.
//
// Exit codes: 0 all caught and nothing else, 1 a bug survived or a run failed,
// 130 interrupted.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/mutants"
)

func main() { os.Exit(execute()) }

func execute() int {
	atOnce := flag.Int("at-once", 4, "how many runs at once")
	crashes := flag.Int("crashes", 0, "kill workers at every crash point this many times in place of planting bugs")
	mode := flag.String("mode", "", "only cells of this delivery mode")
	point := flag.String("point", "", "only cells of this crash point")
	only := flag.String("only", "", "these bugs, comma-separated; with a leading / a scenario without a bug")
	times := flag.Int("times", 1, "plant each bug this many times")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "pushfleet-mutants-")
	if err != nil {
		return failed(err)
	}
	defer os.RemoveAll(dir)
	programs, err := mutants.Build(ctx, dir)
	if err != nil {
		return failed(err)
	}
	if *crashes > 0 {
		return runCells(ctx, programs, *crashes, *atOnce, *mode, *point)
	}
	start := time.Now()
	var outcomes []mutants.Outcome
	for range *times {
		if *only != "" {
			for name := range strings.SplitSeq(*only, ",") {
				outcomes = append(outcomes, one(ctx, programs, name))
			}
			continue
		}
		outcomes = append(outcomes, mutants.RunAll(ctx, programs, *atOnce, func(o mutants.Outcome) {
			if err := o.Judge(); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "mutants:", err)
			}
		})...)
	}
	if ctx.Err() != nil {
		return 130
	}
	if err := mutants.Print(os.Stdout, outcomes); err != nil {
		return failed(err)
	}
	status := 0
	for _, o := range outcomes {
		if o.Judge() != nil {
			status = 1
		}
	}
	fmt.Printf("%d runs in %.0f s\n", len(outcomes), time.Since(start).Seconds())
	return status
}

// one runs what -only names, and prints the first of what is found.
func one(ctx context.Context, programs fleet.Programs, name string) mutants.Outcome {
	bug, scenario := name, ""
	if rest, ok := strings.CutPrefix(name, "/"); ok {
		bug, scenario = "", rest
	}
	for _, m := range mutants.Mutants {
		if m.Bug == bug && bug != "" {
			scenario = m.Scenario
		}
	}
	o := mutants.Run(ctx, programs, bug, scenario)
	const enough = 20
	for _, f := range o.Found[:min(enough, len(o.Found))] {
		fmt.Println(f)
	}
	if o.Err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", o.Err)
	} else if err := o.Harness.Err(); err != nil {
		fmt.Println("the chaos harness:", err)
	}
	return o
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "mutants:", err)
	return 1
}

// runCells kills workers at the crash points, each time a little later.
func runCells(ctx context.Context, programs fleet.Programs, times, atOnce int, mode, point string) int {
	start := time.Now()
	var cells []mutants.Cell
	for n := range times {
		for _, c := range mutants.Cells(mutants.Modes...) {
			if (mode == "" || c.Mode == mode) && (point == "" || c.Point == point) {
				cells = append(cells, c.Later(n))
			}
		}
	}
	status := 0
	outcomes := mutants.RunCells(ctx, programs, cells, atOnce, func(o mutants.CellOutcome) {
		if err := o.Judge(); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			for _, f := range o.Wrong {
				fmt.Fprintln(os.Stderr, "   ", f)
			}
			status = 1
		}
	})
	if ctx.Err() != nil {
		return 130
	}
	if err := mutants.PrintCells(os.Stdout, outcomes); err != nil {
		return failed(err)
	}
	fmt.Printf("%d crashes in %.0f s\n", len(outcomes), time.Since(start).Seconds())
	return status
}
