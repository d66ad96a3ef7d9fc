// Package fleettest runs the tests of packages that need the fleet's programs.
package fleettest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// buildTime bounds the build, which a busy machine with an empty cache makes long.
const buildTime = 5 * time.Minute

// Main is the whole of a TestMain: it has build put the programs that all tests share
// into a directory that is removed in the end, runs the tests, and ends the process
// with their status, or 1 if building failed or goroutines are left.
func Main(m *testing.M, build func(ctx context.Context, dir string) error) {
	status, err := buildAndRun(m, build)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func buildAndRun(m *testing.M, build func(ctx context.Context, dir string) error) (int, error) {
	dir, err := os.MkdirTemp("", "pushfleet-programs-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	err = build(ctx, dir)
	cancel()
	if err != nil {
		return 1, fmt.Errorf("building programs: %w", err)
	}
	status := m.Run()
	if err = goleak.Find(); status == 0 && err != nil {
		return 1, err
	}
	return status, nil
}
