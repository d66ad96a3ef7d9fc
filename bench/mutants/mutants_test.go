//go:build unix

package mutants

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/fleet/fleettest"
)

// programs is the worker with the tag planted, built once.
var programs fleet.Programs

func TestMain(m *testing.M) {
	fleettest.Main(m, func(ctx context.Context, dir string) (err error) {
		programs, err = Build(ctx, dir)
		return err
	})
}

// atOnce is how many worlds run side by side: they wait as much as they work.
const atOnce = 3

// Every planted bug is caught by an invariant that it is there for, and the
// same scenario without it is clean.
func TestEveryPlantedBugIsCaught(t *testing.T) {
	outcomes := RunAll(t.Context(), programs, atOnce, func(o Outcome) {
		if err := o.Judge(); err != nil {
			t.Error(err)
		}
	})
	var table strings.Builder
	if err := Print(&table, outcomes); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
}

// A run shows something only if its outcome is judged both ways.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		why  string
		o    Outcome
		want string // part of the error; empty = none
	}{
		{"clean without a bug", Outcome{Scenario: "steady"}, ""},
		{"a checker that complains of nothing wrong", Outcome{Scenario: "steady", Found: []Finding{{Invariant: Lost, Text: "n1"}}}, "without a bug 1 things are wrong: I1: n1"},
		{"caught", Outcome{Bug: "commit-gap", Scenario: "kill", Found: []Finding{{Invariant: Lost, Text: "n1"}, {Invariant: Ahead, Text: "p0"}}}, ""},
		{"nothing found", Outcome{Bug: "commit-gap", Scenario: "kill"}, "survived"},
		{"found, but not what it is there for", Outcome{Bug: "commit-gap", Scenario: "kill", Found: []Finding{{Invariant: Forbidden, Text: "n1"}}}, "survived"},
		{"the run failed", Outcome{Bug: "commit-gap", Scenario: "kill", Err: context.Canceled}, "the run failed"},
		{"nobody knows it", Outcome{Bug: "no-such-bug", Scenario: "kill", Found: []Finding{{Invariant: Lost, Text: "n1"}}}, "no such mutant"},
	} {
		err := tt.o.Judge()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.why, err, tt.want)
		}
	}
}

// A worker that dies at any point of a notification's way leaves it as its
// lane's mode promises. effectively_once differs from at_least_once only in how
// a repeat looks, so here it dies only where there may be one.
func TestEveryCrashPointIsAsPromised(t *testing.T) {
	cells := slices.DeleteFunc(Cells(Modes...), func(c Cell) bool {
		p, _ := c.promise()
		return c.Mode == effectivelyOnce && p.end < 2
	})
	outcomes := RunCells(t.Context(), programs, cells, atOnce, func(o CellOutcome) {
		if err := o.Judge(); err != nil {
			t.Error(err)
		}
	})
	var table strings.Builder
	if err := PrintCells(&table, outcomes); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
}

// What table 4.2 says is said of every point that issue and reference name.
func TestEveryPointHasAPromise(t *testing.T) {
	named := []string{"before-send", "sent", "answered", "before-status-ack", "after-status-ack", "after-filter", "before-commit",
		"after-commit", "in-revoke", "before-retry-ack", "after-retry-ack", "before-dlq-ack", "after-dlq-ack", "mid-drain"}
	for _, mode := range Modes {
		for _, point := range named {
			p, ok := Cell{Point: point, Mode: mode}.promise()
			if !ok {
				t.Errorf("nothing is promised for %s in %s", point, mode)
			}
			if mode == atMostOnce && p.end > 1 {
				t.Errorf("%s in %s allows %d pushes", point, mode, p.end)
			}
		}
	}
}
