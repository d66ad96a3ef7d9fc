//go:build linux

package whole

import (
	"context"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
)

// TestSmallRun: the measurement itself works, and every push is seen.
func TestSmallRun(t *testing.T) {
	localtest.Require(t)
	programs, err := fleet.Build(t.Context(), t.TempDir(), false, "pushworker")
	if err != nil {
		t.Fatal(err)
	}
	// Ended by this and not by the test's own time-out, it tells what was missing.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	r, err := Run(ctx, Options{Notifications: 150_000, WarmUp: 10_000, Devices: 1, Worker: programs.Worker, Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if r.Notifications == 0 || r.Seconds <= 0 || r.WorkerCPU <= 0 || r.WorkerRSS == 0 || r.Retried > 0 {
		t.Errorf("%+v", r)
	}
}

func TestOptionsThatMeasureNothing(t *testing.T) {
	if _, err := Run(t.Context(), Options{Notifications: 10}); err == nil {
		t.Error("ten notifications were taken for a measurement")
	}
}
