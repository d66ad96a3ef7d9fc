//go:build unix

package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is one run of a program as a child that dies with this process. Its
// methods may be called by several goroutines at once.
type Process struct {
	cmd   *exec.Cmd
	slack time.Duration // of its timers; 0 = as this process's
	done  chan struct{} // closed by the goroutine that waits for the child, after err is set
	err   error
}

// StartProcess starts cmd in a process group of its own. It takes cmd over:
// the caller must not use it any more. The child is killed when this process
// ends, however that happens.
func StartProcess(cmd *exec.Cmd) (*Process, error) { return startProcess(cmd, 0) }

// startProcess is StartProcess, and lets the timers of the child be late by slack, so
// that the kernel wakes it less often; 0 = as those of this process. Where the kernel
// cannot do that, they are as they are.
func startProcess(cmd *exec.Cmd, slack time.Duration) (*Process, error) {
	cmd.SysProcAttr = childAttributes()
	p := &Process{cmd: cmd, slack: slack, done: make(chan struct{})}
	started := make(chan error, 1)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// run starts the child and waits for it, all on one thread: the kernel kills
// the child when the thread that started it ends, and Go ends idle threads as
// it likes, but not one that a goroutine is locked to.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := withTimerSlack(p.slack, p.cmd.Start)
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
}

// PID is the process id of the child; it is also the id of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and Err may be asked.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the child ended: nil for status 0, else an *exec.ExitError. It
// may only be called after Done is closed.
func (p *Process) Err() error { return p.err }

// Signal sends sig to the child and all that it started. A child that has
// ended already is no error.
func (p *Process) Signal(sig syscall.Signal) error {
	err := syscall.Kill(-p.PID(), sig)
	if err == nil || errors.Is(err, syscall.ESRCH) || errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return fmt.Errorf("sending %s to process group %d: %w", sig, p.PID(), err)
}

// End asks the child to end, kills it if it takes longer, and returns when it is
// gone.
func (p *Process) End(within time.Duration) {
	_ = p.Signal(syscall.SIGTERM) // then it is killed
	kill := time.NewTimer(within)
	defer kill.Stop()
	select {
	case <-p.done:
	case <-kill.C:
		_ = p.Signal(syscall.SIGKILL) // it ends now or has ended
		<-p.done
	}
}

// ended says whether the child is known to have ended.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
