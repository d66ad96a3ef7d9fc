package local

import "syscall"

// childAttributes puts a child into a process group of its own, so that all of
// it can be signalled and Ctrl-C in a terminal reaches only us, and has the
// kernel kill it when the thread that started it ends, SIGKILL of us included.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
