//go:build unix

package chaos

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
)

// programs are built once for all tests.
var programs fleet.Programs

func TestMain(m *testing.M) {
	status, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func buildAndRun(m *testing.M) (int, error) {
	if os.Getenv(local.EnvServers) != "" {
		dir, err := os.MkdirTemp("", "pushfleet-chaos-bin-")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if programs, err = fleet.Build(ctx, dir, false, "pushworker"); err != nil {
			return 1, err
		}
	}
	status := m.Run()
	if err := goleak.Find(); status == 0 && err != nil {
		return 1, err
	}
	return status, nil
}

// clean runs a scenario and wants every promise kept.
func clean(t *testing.T, name, mode string, seed uint64, length time.Duration) *Result {
	t.Helper()
	localtest.Require(t)
	s, err := FindScenario(name)
	if err != nil {
		t.Fatal(err)
	}
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

// Ten kills of random workers under load: nothing is lost, and nothing is
// repeated but what each kill exposed, under the collapse id that it had.
func TestKills(t *testing.T) {
	r := clean(t, "kills", configs.EffectivelyOnce, 1, 10*killEvery)
	if n := r.kills(); n != 10 {
		t.Errorf("%d workers were killed, want 10", n)
	}
	known, exposed := 0, 0
	for _, e := range r.Ledgers.Events {
		exposed += len(e.Exposed)
		if e.Exposed != nil {
			known++
		}
	}
	t.Logf("what was exposed is known of %d of %d kills", known, r.kills())
	if exposed == 0 || r.Report.Repeated == 0 {
		t.Errorf("%d pushes were exposed and %d repeated: no kill hit anything in flight, so nothing was tested", exposed, r.Report.Repeated)
	}
}

// Faults of every kind, as the seed has it.
func TestMixed(t *testing.T) {
	r := clean(t, "mixed", configs.AtLeastOnce, 7, 24*time.Second)
	if len(r.Ledgers.Events) < 3 {
		t.Errorf("%d things were done: that is no chaos", len(r.Ledgers.Events))
	}
}
