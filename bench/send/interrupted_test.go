//go:build linux

package send

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
)

// children are the processes that this one has started and not seen the end of.
func children(t *testing.T) (commands []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if fields[1] == strconv.Itoa(os.Getpid()) {
			commands = append(commands, string(stat[:bytes.LastIndexByte(stat, ')')+1]))
		}
	}
	return commands
}

// Whoever interrupts it at any point gets the reason, and no process and no
// folder is left.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	if _, err := fleet.Build(t.Context(), dir, false, "pushsim"); err != nil {
		t.Fatal(err)
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stand := filepath.Join(t.TempDir(), "h2load")
	if err := os.WriteFile(stand, []byte("#!/bin/sh\nsleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(stand)+":"+os.Getenv("PATH"))
	for _, name := range []string{"ours", "h2load", "ours_50ms_validated", simRaw} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, interrupt := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			ended := make(chan error, 1)
			go func() {
				_, err := Run(ctx, Options{
					Simulator: filepath.Join(dir, "pushsim"), Client: []string{me, asClient}, Only: []string{name},
					warmUp: time.Minute, Progress: t.Logf,
				})
				ended <- err
			}()
			// A client and a simulator, or two where there is one of its own.
			wanted := 2
			if name == "ours_50ms_validated" {
				wanted = 3
			}
			for until := time.Now().Add(time.Minute); len(children(t)) < wanted; time.Sleep(time.Millisecond) {
				select {
				case err := <-ended:
					t.Fatalf("it ended by itself: %v", err)
				default:
				}
				if time.Now().After(until) {
					t.Fatalf("the processes are only %v", children(t))
				}
			}
			interrupt(enough)
			select {
			case err := <-ended:
				if !errors.Is(err, enough) {
					t.Errorf("got %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it goes on")
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*")); len(left) > 0 || err != nil {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
