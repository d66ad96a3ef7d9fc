//go:build linux

package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// What h2load says when a thread's main phase begins and ends. It says so at
// once (std::endl).
const (
	mainBegins = "Main benchmark duration is started for thread #"
	mainEnds   = "Main benchmark duration is over for thread #"
)

// phases is what h2load prints, and knows by it whether all of its threads are
// in their main phase.
type phases struct {
	threads int
	main    chan struct{} // closed when the last of them is

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func newPhases(threads int) *phases { return &phases{threads: threads, main: make(chan struct{})} }

// Write implements io.Writer.
func (p *phases) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := strings.Count(p.text.String(), mainBegins)
	p.text.Write(b)
	if before < p.threads && strings.Count(p.text.String(), mainBegins) >= p.threads {
		close(p.main)
	}
	return len(b), nil
}

// String is all that was printed.
func (p *phases) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// over reports whether a thread's main phase is.
func (p *phases) over() bool { return strings.Contains(p.String(), mainEnds) }

// h2loadRun is one run of h2load.
type h2loadRun struct {
	spec     *Spec
	received func(context.Context) (int64, error) // by the simulator, so far
	measured func()                               // called when it is of no more use, but must still end well
	output   *phases
}

// run starts it, which dies with this process, measures it, and waits for its
// end. It ends it when ctx ends.
func (r *h2loadRun) run(ctx context.Context, cmd *exec.Cmd) (*Figures, error) {
	cmd.Stdout, cmd.Stderr = r.output, r.output
	p, err := local.StartProcess(cmd)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		<-p.Done()
		ended <- p.Err()
	}()
	end := func() {
		select {
		case <-p.Done():
		default: // it is of no more use
			_ = p.Signal(syscall.SIGKILL) // or has just ended
			<-p.Done()
		}
	}
	defer end()
	f, err := r.watch(ctx, p.PID(), ended)
	if err == nil {
		r.measured()
		select {
		case err = <-ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		end() // its last words are in the output then
		err = fmt.Errorf("h2load: %w: %s", err, strings.TrimSpace(r.output.String()))
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// watch takes the accounts at the beginning and at the end of the measurement,
// both within the main phase of every thread.
func (r *h2loadRun) watch(ctx context.Context, pid int, ended <-chan error) (*Figures, error) {
	select {
	case <-r.output.main:
	case err := <-ended:
		return nil, errors.Join(errEnded, err)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	before, err := r.take(ctx, pid)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, r.spec.Measure, ended); err != nil {
		return nil, err
	}
	after, err := r.take(ctx, pid)
	if err != nil {
		return nil, err
	}
	peak, err := usage.PeakMemory(pid)
	if err != nil {
		return nil, err
	}
	if r.output.over() {
		return nil, fmt.Errorf("its main phase was over before %v of it were measured: the machine is too slow", r.spec.Measure)
	}
	f := figures(before, after)
	f.Allocations, f.RSS = nil, peak // the allocations are ours
	return f, nil
}

// take is the account of h2load and of the simulator at one moment: that of the
// simulator's count, which takes the longest to get.
func (r *h2loadRun) take(ctx context.Context, pid int) (*account, error) {
	n, err := r.received(ctx)
	if err != nil {
		return nil, err
	}
	a, err := take(new(tally), r.spec.Server)
	if err != nil {
		return nil, err
	}
	a.answered = n
	a.cpu, err = usage.CPU(pid)
	return a, err
}
