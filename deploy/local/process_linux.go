package local

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// childAttributes puts a child into a process group of its own, so that all of
// it can be signalled and Ctrl-C in a terminal reaches only us, and has the
// kernel kill it when the thread that started it ends, SIGKILL of us included.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
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
