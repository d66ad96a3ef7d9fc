//go:build unix

package chaos

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/fleet/fleettest"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
)

// programs are built once for all tests.
var programs fleet.Programs

func TestMain(m *testing.M) {
	fleettest.Main(m, func(ctx context.Context, dir string) (err error) {
		if os.Getenv(local.EnvServers) == "" {
			return nil // what needs it is skipped
		}
		programs, err = fleet.Build(ctx, dir, false, "pushworker", "pushgateway")
		return err
	})
}

// clean runs a scenario and wants every promise kept.
func clean(t *testing.T, name, mode string, seed uint64, length time.Duration) *Result {
	t.Helper()
	localtest.Require(t)
	s, err := FindScenario(name)
	if err != nil {
		t.Fatal(err)
	}
	return cleanOf(t, s, mode, seed, length)
}

// cleanOf is clean of a scenario that may be the test's own.
func cleanOf(t *testing.T, s *Scenario, mode string, seed uint64, length time.Duration) *Result {
	t.Helper()
	if length == 0 {
		length = s.Short
	}
	r, err := Run(t.Context(), Options{Scenario: s, Seed: seed, Length: length, Mode: mode, Busy: true, Programs: programs, Dir: t.TempDir(), Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.WriteText(t.Output(), "of the test"); err != nil {
		t.Fatal(err)
	}
	if err := r.Report.Err(); err != nil {
		t.Fatal(err)
	}
	return r
}

// A worker that commits during an outage what it only writes when the store is
// back is found by the harness's own observers, although every row of it says in
// the end that it was in time.
func TestCommitsOfAnOutageAreSeen(t *testing.T) {
	localtest.Require(t)
	planted, err := fleet.BuildTagged(t.Context(), t.TempDir(), "planted", false, "pushworker")
	if err != nil {
		t.Fatal(err)
	}
	s, err := FindScenario("cassandra")
	if err != nil {
		t.Fatal(err)
	}
	s.weight = 0 // its backlog is for what is said of memory, which takes minutes to be given back
	r, err := Run(t.Context(), Options{Scenario: s, Seed: 1, Length: 24 * time.Second, Busy: true, Programs: planted,
		Env: []string{"PLANTED_BUG=late-is-durable"}, Dir: t.TempDir(), Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r.Report.Err())
	if r.Report.Violations[invariants.I3] == 0 {
		t.Error("nobody has seen the commits that passed what was not durable")
	}
	for id, h := range late(r.Ledgers) {
		t.Errorf("%s has the time %v in its row, after the commit: the bug does not do what it is there for", id, h)
		break
	}
}

// late are the rows of whose notifications the offset was committed before what
// the row says. A sample is up to a second later than the commit. A notification
// that was sent again after it has a row of that push, which says nothing about
// the first; and one with copies may have the row of a copy, which is decided
// again, perhaps without a push, as long as there is no row of the first.
func late(l *invariants.Ledgers) map[string]time.Time {
	passed := map[invariants.Partition]map[int64]time.Time{}
	next := map[invariants.Partition]int64{}
	for _, s := range l.Offsets.Entries {
		if passed[s.Partition] == nil {
			passed[s.Partition] = map[int64]time.Time{}
		}
		for ; next[s.Partition] < s.Committed; next[s.Partition]++ {
			passed[s.Partition][next[s.Partition]] = s.At
		}
	}
	said := map[string]time.Time{}
	for _, r := range l.Status.Entries {
		if at, ok := said[r.ID]; !ok || r.At.Before(at) {
			said[r.ID] = r.At
		}
	}
	pushed := map[string]time.Time{}
	for _, p := range l.Sends.Entries {
		if p.At.After(pushed[p.ID]) {
			pushed[p.ID] = p.At
		}
	}
	copied := map[string]bool{}
	for _, p := range l.Producer.Entries {
		copied[p.ID] = copied[p.ID] || p.Copy
	}
	wrong := map[string]time.Time{}
	for _, p := range l.Producer.Entries {
		at, ok := passed[p.Partition][p.Offset]
		if ok && !copied[p.ID] && !pushed[p.ID].After(at) && said[p.ID].After(at.Add(time.Second)) {
			wrong[p.ID] = said[p.ID]
		}
	}
	return wrong
}

// Ten kills of random workers under load: nothing is lost, and nothing is
// repeated but what each kill exposed, under the collapse id that it had.
func TestKills(t *testing.T) {
	r := clean(t, "kills", configs.EffectivelyOnce, 1, 10*killEvery)
	if n := r.kills(); n != 10 {
		t.Errorf("%d workers were killed, want 10", n)
	}
	var exposed []int
	for _, e := range r.Ledgers.Events {
		if e.Exposed != nil {
			exposed = append(exposed, len(e.Exposed))
		}
	}
	bound := r.Scenario.bound()
	t.Logf("exposed by each kill, of %d: %v", bound, exposed)
	if len(exposed) != r.kills() {
		t.Errorf("what was exposed is known of %d of %d kills", len(exposed), r.kills())
	}
	if len(exposed) == 0 || 2*slices.Max(exposed) < bound || r.Report.Repeated == 0 {
		t.Errorf("no kill exposed half of the bound, or nothing was repeated (%d): the bound was not tested", r.Report.Repeated)
	}
	if in, late := expiring(r.Ledgers); in == 0 || late == 0 {
		t.Errorf("of what expires under way %d were delivered and %d not: the one or the other was not met", in, late)
	} else {
		t.Logf("of what expires under way %d were delivered and %d came too late", in, late)
	}
}

// expiring counts the notifications that expire soon: those that were accepted,
// and those of which nothing was and a row says that they expired.
func expiring(l *invariants.Ledgers) (in, late int) {
	accepted, expired := map[string]bool{}, map[string]bool{}
	for _, s := range l.Sends.Entries {
		accepted[s.ID] = accepted[s.ID] || s.Accepted
	}
	for _, r := range l.Status.Entries {
		expired[r.ID] = expired[r.ID] || r.State == invariants.Expired
	}
	for _, p := range l.Producer.Entries {
		switch wait := p.Deadline.Sub(p.At); {
		case p.Copy || wait <= 0 || wait > soonWithin:
		case accepted[p.ID]:
			in++
		case expired[p.ID]:
			late++
		}
	}
	return in, late
}

// Where a lane sends at most once, a kill leaves UNKNOWN what was committed and
// not answered: up to a batch of each of the worker's partitions. Nothing is
// repeated.
func TestKillsAtMostOnce(t *testing.T) {
	r := clean(t, "kills", configs.AtMostOnce, 2, 6*killEvery)
	var left []int
	for i, e := range r.Ledgers.Events {
		if e.Unknown > 0 {
			left = append(left, r.Report.Events[i].Unknown)
		}
	}
	usual := r.Scenario.intended() / r.Scenario.Workers
	t.Logf("left UNKNOWN by each kill, of %d that a worker's usual share of partitions may have open: %v", usual, left)
	if len(left) == 0 || 2*slices.Max(left) < usual {
		t.Error("no kill left half of what a worker may: the bound was not tested")
	}
}

// Faults of every kind, as the seed has it.
func TestMixed(t *testing.T) {
	r := clean(t, "mixed", configs.AtLeastOnce, 7, 24*time.Second)
	if len(r.Ledgers.Events) < 3 {
		t.Errorf("%d things were done: that is no chaos", len(r.Ledgers.Events))
	}
}
