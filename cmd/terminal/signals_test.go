//go:build unix

package terminal

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// waiting, if set, turns the test binary into a program that prints when its
// context has ended, and then keeps running.
const waiting = "TERMINAL_TEST_WAITS"

func TestMain(m *testing.M) {
	if os.Getenv(waiting) == "" {
		os.Exit(m.Run())
	}
	ctx, _ := UntilSignal(context.Background())
	_, _ = os.Stdout.WriteString("begun\n")
	<-ctx.Done()
	_, _ = os.Stdout.WriteString("draining\n")
	time.Sleep(time.Minute)
}

// The first signal ends the context. A second one, sent as soon as that can be
// observed, always ends the process.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	for range 20 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), waiting+"=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for _, want := range []string{"begun", "draining"} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("it printed %q, want %q", lines.Text(), want)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		err = cmd.Wait()
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM || time.Since(began) > 50*time.Second {
			t.Fatalf("after the second signal it ended with %v, %v later", err, time.Since(began))
		}
	}
}

// Without a signal the context ends with its parent, and no goroutine is left.
func TestUntilSignalStops(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	ctx, stop := UntilSignal(parent)
	cancel()
	<-ctx.Done()
	stop()
	ctx, stop = UntilSignal(t.Context())
	stop()
	if ctx.Err() == nil {
		t.Error("it has not ended")
	}
}
