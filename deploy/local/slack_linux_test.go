package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The slack of the timers is the child's alone: the thread that starts it goes on as before.
func TestTimerSlackIsTheChilds(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack := func() string {
		ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
		noError(t, err)
		return strconv.Itoa(ns)
	}
	before := slack()
	for _, tt := range []struct {
		slack time.Duration
		want  string
	}{{7 * time.Millisecond, "7000000"}, {0, before}} {
		child := exec.Command("cat", "/proc/self/timerslack_ns")
		var out strings.Builder
		child.Stdout = &out
		noError(t, withTimerSlack(tt.slack, child.Start))
		if after := slack(); after != before {
			t.Errorf("this thread's timers may be late by %s ns after a child with %v, want %s as before", after, tt.slack, before)
		}
		noError(t, child.Wait())
		if got := strings.TrimSpace(out.String()); got != tt.want {
			t.Errorf("timers of a child with %v may be late by %s ns, want %s", tt.slack, got, tt.want)
		}
	}
}

// A server has the slack of its program, also when it was started again.
func TestServerWithTimerSlack(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	s, err := launch(t.Context(), "shell", dir, 1, func(dir string, ports []int) (*Server, error) {
		s, err := shell("cat /proc/self/timerslack_ns >new; mv new told; exec sleep 600", func(context.Context) error {
			_, err := os.Stat(told)
			return err
		})(dir, ports)
		s.slack = 3 * time.Millisecond
		return s, err
	})
	noError(t, err)
	closed(t, s)
	for range 2 {
		got, err := os.ReadFile(told)
		noError(t, err)
		if strings.TrimSpace(string(got)) != "3000000" {
			t.Errorf("timers of the server may be late by %s ns, want 3000000", got)
		}
		noError(t, os.Remove(told))
		noError(t, s.Restart(t.Context()))
	}
}
