//go:build unix && !linux

package local

import "syscall"

// childAttributes puts a child into a process group of its own. Only Linux can
// promise that the child dies when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
