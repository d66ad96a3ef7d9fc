//go:build unix

package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	logName = "server.log"
	// A Java server on a busy 2-core machine has been seen to take two minutes; this
	// is a bound for a server that hangs, not an expectation.
	startTimeout = 5 * time.Minute
	// Cassandra drains its memtables when told to stop.
	stopTimeout = 30 * time.Second
)

// Access is what a secured server demands of its clients: TLS that trusts CA,
// and a user with a password.
type Access struct {
	CA       *CA
	User     string
	Password string
}

// program is how to run one kind of server: what differs among the three.
type program struct {
	name string
	// command makes the command line; the working directory and the log are
	// filled in by start.
	command func() *exec.Cmd
	// slack is how late its timers may be; 0 = as late as this process's.
	slack time.Duration
	// ready does one real request. An error means: not yet.
	ready func(ctx context.Context) error
	// wipe empties a running server; nil where there is no such thing.
	wipe func(ctx context.Context) error
}

// Server is a server that runs as a child process, and keeps its ports and its
// data directory over restarts. Its methods may be called by several
// goroutines at once; those that change its state wait for each other.
type Server struct {
	program
	addr    string
	secure  string // a second address that demands Access; "" when there is none
	dir     string
	ownDir  bool
	busPort int // where the nodes of a Redis Cluster talk; 0 elsewhere

	mu      sync.Mutex // guards what follows
	process *Process   // the latest run, which may have ended; nil before the first
	paused  bool
}

// Addr is the host:port that clients connect to. With Access given, Redis and
// Cassandra demand it there; Kafka demands it at SecureAddr.
func (s *Server) Addr() string { return s.addr }

// SecureAddr is the host:port where Kafka demands SASL over TLS; empty for a
// server without.
func (s *Server) SecureAddr() string { return s.secure }

// Dir is the data directory.
func (s *Server) Dir() string { return s.dir }

// LogFile is the file that takes the server's output, of all its runs.
func (s *Server) LogFile() string { return filepath.Join(s.dir, logName) }

// PID is the process id of the latest run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.PID()
}

// Done is closed when the latest run has ended, whoever ended it.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Done()
}

// Stop asks the server to end and waits until it has; after 30 s, or when ctx
// ends, it is killed, and the error says so. The data stays. Stopping a server
// that has ended is no error.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx)
}

// Kill ends the server at once, as kill -9 does, and waits until it is gone.
// The data stays as it is.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

// Pause stops the server where it stands, as kill -STOP does: connections stay
// open and get no answer. It lasts until Resume, Stop, Kill or Restart.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process.ended() {
		return fmt.Errorf("pausing %s: it has ended", s.name)
	}
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.paused = true
	return nil
}

// Resume lets a paused server go on.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resume()
}

// Restart stops the server unless it has ended, starts it again on the same
// ports and data, and returns when it answers. Redis comes back empty unless it
// was started with AppendOnly.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(ctx); err != nil {
		return err
	}
	return s.start(ctx)
}

// Wipe empties a running Redis (FLUSHALL). Other servers answer with an error.
func (s *Server) Wipe(ctx context.Context) error {
	if s.wipe == nil {
		return fmt.Errorf("wiping %s: %w", s.name, errors.ErrUnsupported)
	}
	if err := s.wipe(ctx); err != nil {
		return fmt.Errorf("wiping %s: %w", s.name, err)
	}
	return nil
}

// Close kills the server if it still runs and removes the data directory,
// unless the caller named one. Closing twice is fine.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.kill()
	if s.ownDir {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// start runs the program and waits until it answers. The caller holds mu, or
// is the only one to know s.
func (s *Server) start(ctx context.Context) error {
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", s.name, err)
	}
	defer log.Close() // the child has its own copy
	cmd := s.command()
	cmd.Dir = s.dir
	cmd.Stdout, cmd.Stderr = log, log
	process, err := startProcess(cmd, s.slack)
	if err != nil {
		return err
	}
	s.process, s.paused = process, false
	if err := s.awaitReady(ctx); err != nil {
		return errors.Join(err, s.kill())
	}
	return nil
}

// awaitReady asks until the server answers, ends, or time is up.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := s.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Done():
			return fmt.Errorf("starting %s at %s: it ended: %w%s", s.name, s.addr, exitError(s.process.Err()), s.Tail())
		case <-ctx.Done():
			return fmt.Errorf("starting %s at %s: %w; last attempt: %w%s", s.name, s.addr, context.Cause(ctx), err, s.Tail())
		case <-time.After(25 * time.Millisecond):
		}
	}
}

func (s *Server) stop(ctx context.Context) error {
	if s.process.ended() {
		return nil
	}
	if err := s.resume(); err != nil {
		return err
	}
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-s.process.Done():
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stopping %s: killed, as it did not end in time: %w%s", s.name, context.Cause(ctx), s.Tail()), s.kill())
	}
}

func (s *Server) kill() error {
	if s.process == nil || s.process.ended() {
		return nil
	}
	if err := s.process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-s.process.Done()
	return nil
}

func (s *Server) resume() error {
	if !s.paused || s.process.ended() {
		return nil
	}
	s.paused = false
	return s.process.Signal(syscall.SIGCONT)
}

// exitError names an end with status 0, which has no error of its own.
func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// Tail is the end of the server's log, about 20 lines, with words before it
// that let it stand behind an error.
func (s *Server) Tail() string { return logTail(s.LogFile()) }

func logTail(path string) string {
	const most = 3000 // bytes; about 20 lines
	file, err := os.Open(path)
	if err != nil {
		return "; it has no log"
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > most {
		_, _ = file.Seek(-most, io.SeekEnd)
	}
	end, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil || len(bytes.TrimSpace(end)) == 0 {
		return "; its log is empty"
	}
	return fmt.Sprintf("; the end of %s:\n%s", path, bytes.TrimSpace(end))
}
