package fleettest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

var program string

func TestMain(m *testing.M) {
	Main(m, func(_ context.Context, dir string) error {
		program = filepath.Join(dir, "program")
		return os.WriteFile(program, []byte("built"), 0o700)
	})
}

func TestTestsHaveWhatWasBuilt(t *testing.T) {
	if got, err := os.ReadFile(program); string(got) != "built" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestNoTestRunsWithoutItsPrograms(t *testing.T) {
	broken, where := errors.New("does not compile"), ""
	status, err := buildAndRun(nil, func(_ context.Context, dir string) error { // a nil M would panic
		where = dir
		return broken
	})
	if status == 0 || !errors.Is(err, broken) {
		t.Errorf("got status %d, %v", status, err)
	}
	if _, err := os.Stat(where); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}
