package local

import (
	"os/exec"
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

// A process that is started with a slack has it.
func TestProcessWithTimerSlack(t *testing.T) {
	child := exec.Command("cat", "/proc/self/timerslack_ns")
	var out strings.Builder
	child.Stdout = &out
	p, err := startProcess(child, 3*time.Millisecond)
	noError(t, err)
	<-p.Done()
	noError(t, p.Err())
	if got := strings.TrimSpace(out.String()); got != "3000000" {
		t.Errorf("timers of the process may be late by %s ns, want 3000000", got)
	}
}
