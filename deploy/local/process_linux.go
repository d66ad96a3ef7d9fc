package local

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// childAttributes puts a child into a process group of its own, so that all of
// it can be signalled and Ctrl-C in a terminal reaches only us, and has the
// kernel kill it when the thread that started it ends, SIGKILL of us included.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// withTimerSlack calls start, which starts a child on this thread. The child inherits how
// late the timers of the thread may be (prctl(2), PR_SET_TIMERSLACK), and so do all its
// threads. The caller has locked the thread.
func withTimerSlack(slack time.Duration, start func() error) error {
	if slack > 0 {
		if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err == nil {
			defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // the default again, which cannot fail if the other did not
		}
	}
	return start()
}

// limitFiles makes each write of a running process beyond the first size bytes
// of a file fail with EFBIG. A program that does not ignore SIGXFSZ, as Java
// does, is killed by it instead.
func limitFiles(pid int, size uint64) error {
	limit := unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		return fmt.Errorf("limiting the files of process %d: %w", pid, err)
	}
	return nil
}
