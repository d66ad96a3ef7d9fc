//go:build unix

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// pollPause is how often something that is waited for is looked at.
const pollPause = 20 * time.Millisecond

// Process is one run of pushworker, which dies with this process. Its methods
// may be called by several goroutines at once.
type Process struct {
	Name    string // "registry 1", "worker 2": the second that was started
	logFile string
	process *local.Process
	ending  atomic.Bool // it was told to end, so that the end is no failure
}

// start runs a program with its output, of both kinds, in a file, and with env
// added to its environment.
func start(name, logFile string, env []string, program string, args ...string) (*Process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer out.Close() // the child has its own copy
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, append(environ(), env...)
	p, err := local.StartProcess(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return &Process{Name: name, logFile: logFile, process: p}, nil
}

// environ is this process's environment without what would override settings.
func environ() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, configs.EnvPrefix) {
			env = append(env, v)
		}
	}
	return env
}

// PID is the process id.
func (p *Process) PID() int { return p.process.PID() }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.process.Done() }

// Running says whether it has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Done():
		return false
	default:
		return true
	}
}

// Signal sends it a signal: SIGSTOP and SIGCONT pause it, SIGTERM drains it.
func (p *Process) Signal(s syscall.Signal) error {
	if s == syscall.SIGKILL || s == syscall.SIGTERM || s == syscall.SIGINT {
		p.ending.Store(true)
	}
	return p.process.Signal(s)
}

// failure is an error when it has ended without being told to.
func (p *Process) failure() error {
	if p.Running() || p.ending.Load() {
		return nil
	}
	return fmt.Errorf("%s has ended by itself: %v%s", p.Name, p.process.Err(), p.Tail())
}

// Kill ends it as kill -9 does, and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Done()
	return nil
}

// Term sends SIGTERM and waits for the end. It returns the exit status, and an
// error when ctx ends first.
func (p *Process) Term(ctx context.Context) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	return p.Wait(ctx)
}

// Wait waits for the end and returns the exit status; 128 and the number of
// the signal when one ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.Done():
	case <-ctx.Done():
		return 0, fmt.Errorf("waiting for the end of %s: %w%s", p.Name, context.Cause(ctx), p.Tail())
	}
	var exit *exec.ExitError
	switch err := p.process.Err(); {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), nil
		}
		return exit.ExitCode(), nil
	default:
		return 0, fmt.Errorf("waiting for the end of %s: %w", p.Name, err)
	}
}

// Log is all that it has written so far.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Tail is the end of its log, with words before it that let it stand behind an
// error.
func (p *Process) Tail() string {
	text := strings.TrimSpace(p.Log())
	const most = 4000 // bytes; about 20 lines
	if len(text) > most {
		text = "…" + text[len(text)-most:]
	}
	return "; the end of the log of " + p.Name + ":\n" + text
}

// AwaitLog waits until its log has a line with all of these words.
func (p *Process) AwaitLog(ctx context.Context, words ...string) error {
	return p.await(ctx, fmt.Sprintf("a log line with %q", words), func() (bool, error) {
		for line := range strings.SplitSeq(p.Log(), "\n") {
			if containsAll(line, words) {
				return true, nil
			}
		}
		return false, nil
	})
}

func containsAll(s string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(s, w) {
			return false
		}
	}
	return true
}

// await asks until it is so, the process has ended, or ctx ends.
func (p *Process) await(ctx context.Context, what string, look func() (bool, error)) error {
	for {
		ok, last := look()
		if ok {
			return nil
		}
		problem := ""
		if last != nil {
			problem = ": " + last.Error()
		}
		select {
		case <-p.Done():
			return fmt.Errorf("waiting for %s of %s: it has ended%s%s", what, p.Name, problem, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s of %s: %w%s%s", what, p.Name, context.Cause(ctx), problem, p.Tail())
		case <-time.After(pollPause):
		}
	}
}

// Admin is the host:port of its admin listener, or empty while it has none.
func (p *Process) Admin() string { return p.serving("/metrics") }

// serving is where it says in its log that it serves something, or empty.
func (p *Process) serving(what string) string {
	for line := range bytes.Lines([]byte(p.Log())) {
		var entry struct{ Msg, At string }
		if json.Unmarshal(line, &entry) == nil && strings.HasPrefix(entry.Msg, "serving "+what) {
			return entry.At
		}
	}
	return ""
}

// AwaitCallers waits until a gateway listens for callers, and returns where: host:port.
func (p *Process) AwaitCallers(ctx context.Context) (at string, err error) {
	err = p.await(ctx, "an address for callers", func() (bool, error) {
		at = p.serving("callers")
		return at != "", nil
	})
	return at, err
}

// AwaitPage waits until a dashboard serves its page, and returns where: host:port.
func (p *Process) AwaitPage(ctx context.Context) (at string, err error) {
	err = p.await(ctx, "the address of the page", func() (bool, error) {
		for line := range strings.Lines(p.Log()) {
			if rest, is := strings.CutPrefix(line, "http://"); is && strings.HasSuffix(rest, "/\n") {
				at = strings.TrimSuffix(rest, "/\n")
			}
		}
		return at != "", nil
	})
	return at, err
}

// Ready asks /readyz?verbose: whether it is ready, and the lines that say why.
func (p *Process) Ready(ctx context.Context) (bool, string, error) {
	status, body, err := p.get(ctx, "/readyz?verbose")
	return status == http.StatusOK, body, err
}

// AwaitReady waits until /readyz says yes.
func (p *Process) AwaitReady(ctx context.Context) error {
	return p.await(ctx, "readiness", func() (bool, error) {
		ready, lines, err := p.Ready(ctx)
		if err == nil && !ready {
			err = errors.New(strings.TrimSpace(lines))
		}
		return ready, err
	})
}

// AwaitUnready waits until /readyz?verbose answers 503 with all of these words.
func (p *Process) AwaitUnready(ctx context.Context, words ...string) error {
	return p.await(ctx, fmt.Sprintf("a readiness that says %q", words), func() (bool, error) {
		ready, lines, err := p.Ready(ctx)
		if err != nil {
			return false, err
		}
		return !ready && containsAll(lines, words), errors.New(strings.TrimSpace(lines))
	})
}

// Profile is one of /debug/pprof, which the worker's configuration must allow:
// "allocs", or "profile?seconds=2", which takes that long.
func (p *Process) Profile(ctx context.Context, which string) ([]byte, error) {
	status, body, err := p.get(ctx, "/debug/pprof/"+which)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", status, strings.TrimSpace(body))
	}
	if err != nil {
		return nil, fmt.Errorf("taking the profile %s of %s: %w", which, p.Name, err)
	}
	return []byte(body), nil
}

func (p *Process) get(ctx context.Context, path string) (int, string, error) {
	at := p.Admin()
	if at == "" {
		return 0, "", errors.New("it serves no admin address yet")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Close = true // the process may be killed: no connection is worth keeping
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}
