//go:build unix

package mutants

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// Mutant is a planted bug, the scenario in which it shows, and the invariants
// of which at least one must catch it.
type Mutant struct {
	Bug      string
	Scenario string
	By       []Invariant
}

// unseen are the bugs of which the chaos harness's checker sees nothing, and why.
// It must find all others.
var unseen = map[string]string{
	"first-tier-always":   noWaits,
	"retry-without-floor": noWaits,
	"ignore-retry-after":  noWaits,
	"later-is-unknown":    "in at_most_once it takes every UNKNOWN for meant",
}

const noWaits = "its ledgers do not say when a push may be tried again"

// Mutants are all planted bugs.
var Mutants = []Mutant{
	{"commit-before-status", "kill", []Invariant{Ahead, Lost}},
	{"commit-after-revoke", "join", []Invariant{Rewound}},
	{"mark-after-revoke", "join", []Invariant{Ahead}},
	{"ignore-revoked", "join", []Invariant{Repeated}},
	{"ignore-lease", "pause", []Invariant{Repeated}},
	{"lease-by-clock", "pause", []Invariant{Repeated}},
	{"send-before-intents", "kill-once", []Invariant{Lost, Ahead}},
	{"send-before-commit", "pause-once", []Invariant{Repeated}},
	{"skip-reread", "kill-once", []Invariant{Lost}},
	{"resend-intent", "kill-once", []Invariant{Repeated}},
	{"commit-gap", "kill", []Invariant{Ahead}},
	{"trust-filter", "steady", []Invariant{Lost}},
	{"drop-last-record", "steady", []Invariant{Lost}},
	{"retry-is-delivered", "steady", []Invariant{Unproven}},
	{"silence-is-delivered", "silence", []Invariant{Unproven}},
	{"resend-and-retry", "steady", []Invariant{Repeated}},
	{"resend-on-goaway", "goaway", []Invariant{Repeated}},
	{"lose-on-store-error", "redis-away", []Invariant{Lost}},
	{"wiped-is-no-device", "redis-wiped", []Invariant{Lost}},
	{"timeout-is-success", "status-hung", []Invariant{Lost, Ahead}},
	{"late-is-durable", "status-hung", []Invariant{Ahead}},
	{"ack-dlq-unproduced", "kill", []Invariant{Lost}},
	{"ack-retry-unproduced", "kill", []Invariant{Lost}},
	{"ignore-produce-refusal", "produce-refused", []Invariant{Lost}},
	{"confirm-from-nothing", "kill", []Invariant{Repeated}},
	{"limiter-counts-twice", "steady", []Invariant{Capped}},
	{"limiter-forgets", "kill-limited", []Invariant{Capped}},
	{"skip-third-device", "steady", []Invariant{Lost}},
	{"row-before-retry", "kill", []Invariant{Lost}},
	{"row-before-dlq", "kill", []Invariant{Lost}},
	{"later-is-unknown", "kill-once", []Invariant{Lost}},
	{"resend-ambiguous", "lost-answers-once", []Invariant{Repeated}},
	{"ignore-drop-ambiguous", "lost-answers", []Invariant{Repeated}},
	{"release-answered", "status-hung", []Invariant{Exposed}},
	{"first-tier-always", "later", []Invariant{Hasty}},
	{"retry-without-floor", "later", []Invariant{Hasty}},
	{"ignore-retry-after", "later", []Invariant{Hasty}},
	{"ignore-expiry", "steady", []Invariant{Forbidden}},
	{"ignore-opt-out", "steady", []Invariant{Forbidden}},
	{"stop-forgets-rows", "stop", []Invariant{Repeated}},
	{"skip-recheck", "opted-out-later", []Invariant{Forbidden}},
	{"count-gaps", "gaps-once", []Invariant{Lost}},
	{"trust-forgotten", "aged", []Invariant{Repeated}},
	{"drop-held", "held", []Invariant{Lost}},
	{"retry-ignores-expiry", "soon", []Invariant{Forbidden}},
	{"later-is-gone", "steady", []Invariant{Lost}},
}

// Outcome is what became of one run: of a mutant, or of a scenario without a
// bug.
type Outcome struct {
	Bug      string // empty = none was planted
	Scenario string
	Found    []Finding
	Harness  *invariants.Report // what the chaos harness's checker says of the same run
	Took     time.Duration
	Err      error // the run itself failed: it shows nothing
}

// How long a world may take until all is committed, before it counts as stuck:
// one with a bug, of which some never end and all have other findings too, and
// one that must be clean, where the limit only detects a hang.
const (
	within        = 25 * time.Second
	withinPromise = 3 * time.Minute
)

// patience is how long a whole run may take. It bounds every wait in it.
const patience = 5 * time.Minute

// Run runs one scenario with a bug planted, or without.
func Run(ctx context.Context, programs fleet.Programs, bug, name string) Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %v", patience))
	defer cancel()
	start := time.Now()
	o := Outcome{Bug: bug, Scenario: name}
	o.Found, o.Harness, o.Err = run(ctx, programs, bug, name)
	o.Took = time.Since(start)
	return o
}

func run(ctx context.Context, programs fleet.Programs, bug, name string) (found []Finding, harness *invariants.Report, err error) {
	s := scenarios[name]
	if s == nil {
		return nil, nil, fmt.Errorf("there is no scenario %q", name)
	}
	w, err := newWorld(ctx, worldOptions{programs: programs, records: s.records, crowd: s.crowd, configure: s.config,
		faults: sim.RouteSet{APNS: s.apns, FCM: s.fcm}})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w%s", err, w.Logs())
		}
		err = errors.Join(err, w.close())
	}()
	w.produce = cellOf(w.Config.Lanes[0], fleet.FromCrowd(w.people.Records(), s.records))
	if s.change != nil {
		s.change(w)
	}
	if err := w.append(ctx, s); err != nil {
		return nil, nil, err
	}
	var planted []string
	limit := withinPromise
	if bug != "" {
		planted, limit = []string{envBug + "=" + bug}, within
	}
	if err := s.run(ctx, w, planted); err != nil {
		return nil, nil, err
	}
	if found, err = w.check(ctx, limit); err != nil {
		return nil, nil, err
	}
	harness, err = w.harness(ctx)
	return found, harness, err
}

// Judge is nil when the outcome is what it must be: nothing found without a
// bug, one of the mutant's invariants with it.
func (o *Outcome) Judge() error {
	switch {
	case o.Err != nil:
		return fmt.Errorf("%s: the run failed: %w", o.name(), o.Err)
	case o.Bug == "" && len(o.Found) > 0:
		return fmt.Errorf("%s: without a bug %d things are wrong: %s", o.name(), len(o.Found), o.Found[0])
	case o.Bug == "" && o.Harness != nil && !o.Harness.Clean():
		return fmt.Errorf("%s: without a bug the chaos harness says: %w", o.name(), o.Harness.Err())
	case o.Bug == "":
		return nil
	}
	for _, m := range Mutants {
		if m.Bug != o.Bug {
			continue
		}
		got := violated(o.Found)
		if unseen[o.Bug] == "" && o.Harness != nil && o.Harness.Clean() {
			return fmt.Errorf("%s: survived the chaos harness, the accounting says %v", o.name(), got)
		}
		if slices.ContainsFunc(m.By, func(i Invariant) bool { return slices.Contains(got, i) }) {
			return nil
		}
		return fmt.Errorf("%s: survived: want %v violated, got %v", o.name(), m.By, got)
	}
	return fmt.Errorf("%s: there is no such mutant", o.name())
}

func (o *Outcome) name() string {
	if o.Bug == "" {
		return o.Scenario
	}
	return o.Bug + " in " + o.Scenario
}

// harness names what the chaos harness's checker found.
func (o *Outcome) harness() string {
	if o.Harness == nil || o.Harness.Clean() {
		return "-"
	}
	var names []string
	for _, i := range invariants.All() {
		if o.Harness.Violations[i] > 0 {
			names = append(names, string(i))
		}
	}
	return strings.Join(names, " ")
}

func (f Finding) String() string { return string(f.Invariant) + ": " + f.Text }

// RunAll runs every scenario without a bug and then every mutant, some at once.
// each, if given, is told of every outcome, one at a time.
func RunAll(ctx context.Context, programs fleet.Programs, atOnce int, each func(Outcome)) []Outcome {
	outcomes := make([]Outcome, 0, len(scenarios)+len(Mutants))
	for name := range scenarios {
		outcomes = append(outcomes, Outcome{Scenario: name})
	}
	slices.SortFunc(outcomes, func(a, b Outcome) int { return strings.Compare(a.Scenario, b.Scenario) })
	for _, m := range Mutants {
		outcomes = append(outcomes, Outcome{Bug: m.Bug, Scenario: m.Scenario})
	}
	var running sync.WaitGroup
	var telling sync.Mutex
	places := make(chan struct{}, max(1, atOnce))
	for i := range outcomes {
		places <- struct{}{}
		running.Go(func() {
			defer func() { <-places }()
			outcomes[i] = Run(ctx, programs, outcomes[i].Bug, outcomes[i].Scenario)
			if each != nil {
				telling.Lock()
				defer telling.Unlock()
				each(outcomes[i])
			}
		})
	}
	running.Wait()
	return outcomes
}

// Print writes the outcomes as a table.
func Print(out io.Writer, outcomes []Outcome) error {
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "BUG\tSCENARIO\tCAUGHT BY\tCHAOS HARNESS\tSECONDS\tFOR EXAMPLE")
	for _, o := range outcomes {
		bug, caught, example := o.Bug, "-", ""
		if bug == "" {
			bug = "(none)"
		}
		if names := violated(o.Found); len(names) > 0 {
			words := make([]string, len(names))
			for i, n := range names {
				words[i] = string(n)
			}
			caught, example = strings.Join(words, " "), fmt.Sprintf("%d findings; %.120s", len(o.Found), o.Found[0])
		}
		if err := o.Judge(); err != nil {
			caught, example = "SURVIVED", firstLine(err.Error())
			if o.Bug == "" || o.Err != nil {
				caught = "FAILED"
			}
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.1f\t%s\n", bug, o.Scenario, caught, o.harness(), o.Took.Seconds(), example)
	}
	return t.Flush()
}
