//go:build unix && !linux

package local

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// childAttributes puts a child into a process group of its own. Only Linux can
// promise that the child dies when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// withTimerSlack calls start. Only Linux lets timers be late.
func withTimerSlack(_ time.Duration, start func() error) error { return start() }

// limitFiles needs prlimit, which only Linux has.
func limitFiles(int, uint64) error {
	return fmt.Errorf("limiting the files of a process: %w", errors.ErrUnsupported)
}
