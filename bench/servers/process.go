//go:build linux

package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
)

// How long a process may take to listen and to end, on a machine that is busy.
const (
	startTime = 30 * time.Second
	stopTime  = 10 * time.Second
	dialPause = 20 * time.Millisecond
)

// process is one that runs Serve, and dies with this one.
type process struct {
	name    string
	process *local.Process
	calls   *rpc.Client
	log     string // path
}

// start runs program, whose arguments end where Serve's begin, and connects to it. Socket and log are in dir.
func start(ctx context.Context, program []string, dir, name string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log")}
	socket := filepath.Join(dir, name+".sock")
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer out.Close() // the child has its own copy
	cmd := exec.Command(program[0], append(program[1:len(program):len(program)], name, socket)...)
	cmd.Stdout, cmd.Stderr = out, out
	if p.process, err = local.StartProcess(cmd); err != nil {
		return nil, err
	}
	if err := p.connect(ctx, socket); err != nil {
		p.Close()
		return nil, fmt.Errorf("starting %s: %w%s", name, err, p.tail())
	}
	return p, nil
}

func (p *process) connect(ctx context.Context, socket string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		if p.calls, err = rpc.Dial("unix", socket); err == nil {
			return nil
		}
		select {
		case <-p.process.Done():
			return errors.New("it has ended")
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(dialPause):
		}
	}
}

// call asks it something; the answer is valid only without an error.
func (p *process) call(ctx context.Context, method string, args, answer any) error {
	if ctx.Err() != nil {
		return fmt.Errorf("asking %s: %s: %w", p.name, method, context.Cause(ctx))
	}
	select {
	case call := <-p.calls.Go(method, args, answer, make(chan *rpc.Call, 1)).Done:
		if call.Error != nil {
			return fmt.Errorf("asking %s: %s: %w", p.name, method, call.Error)
		}
		return nil
	case <-p.process.Done():
		return fmt.Errorf("asking %s: it has ended%s", p.name, p.tail())
	case <-ctx.Done():
		return fmt.Errorf("asking %s: %s: %w", p.name, method, context.Cause(ctx))
	}
}

// PID is its process id.
func (p *process) PID() int { return p.process.PID() }

// Close ends it and waits until it is gone.
func (p *process) Close() {
	if p.calls != nil {
		_ = p.calls.Close() // the process ends anyway
	}
	p.process.End(stopTime)
}

// tail is what it said, to stand behind an error.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log) // without it, there is nothing to say
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return ""
	}
	const most = 2000 // bytes
	return ": " + string(text[max(0, len(text)-most):])
}
