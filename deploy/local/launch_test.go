//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shell is a server that is a shell script; ready says when it answers.
func shell(script string, ready func(context.Context) error) func(string, []int) (*Server, error) {
	return func(_ string, ports []int) (*Server, error) {
		return &Server{addr: hostPort(ports[0]), program: program{
			name:    "shell",
			command: func() *exec.Cmd { return exec.Command("sh", "-c", script) },
			ready:   ready,
		}}, nil
	}
}

func never(context.Context) error { return errors.New("nobody there") }

func TestLaunchTellsWhyAServerEnded(t *testing.T) {
	_, err := launch(t.Context(), "shell", "", 1, shell("echo first; echo the reason >&2; exit 3", never))
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("error is %v, want the exit status and the end of the log", err)
	}
}

func TestLaunchGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	why := errors.New("the test has seen enough")
	_, err := launch(ctx, "shell", dir, 1, shell("echo $$ >new; mv new pid; exec sleep 600", func(context.Context) error {
		if _, err := os.Stat(filepath.Join(dir, "pid")); err == nil {
			cancel(why)
		}
		return errors.New("nobody there")
	}))
	if !errors.Is(err, why) || !strings.Contains(err.Error(), "nobody there") {
		t.Errorf("error is %v, want the cause and the last attempt", err)
	}
	var pid int
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	noError(t, err)
	if _, err := fmt.Sscan(string(text), &pid); err != nil || alive(pid) {
		t.Errorf("process %q still runs (%v)", text, err)
	}
}

func TestLaunchTriesOtherPortsWhenOneIsTaken(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		want         int // attempts
	}{
		{"taken once", "mkdir $DIR/once 2>/dev/null && { echo Address already in use; exit 1; }; exec sleep 600", 2},
		{"always taken", "echo java.net.BindException: in use; exit 1", 3},
		{"another fault", "echo wrong configuration; exit 1", 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			attempts := 0
			marks := t.TempDir()
			s, err := launch(t.Context(), "shell", "", 2, func(dir string, ports []int) (*Server, error) {
				attempts++
				if ports[0] == ports[1] {
					t.Errorf("the same port %d twice", ports[0])
				}
				script := strings.ReplaceAll(tt.script, "$DIR", marks)
				// It is ready once it has told its own id, which it does not when it fails.
				return shell(script, func(context.Context) error {
					if _, err := os.Stat(filepath.Join(marks, "once")); err == nil && attempts > 1 {
						return nil
					}
					return errors.New("nobody there")
				})(dir, ports)
			})
			if attempts != tt.want {
				t.Errorf("%d attempts, want %d", attempts, tt.want)
			}
			if ok := err == nil; ok != (tt.name == "taken once") {
				t.Errorf("error is %v", err)
			}
			if err == nil {
				noError(t, s.Close())
				if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("after Close its own directory is there: %v", err)
				}
			}
		})
	}
}

func TestCloseKeepsTheCallersDirectory(t *testing.T) {
	dir := t.TempDir()
	s := must[*Server](t)(launch(t.Context(), "shell", dir, 1, shell("exec sleep 600", func(context.Context) error { return nil })))
	noError(t, s.Close())
	noError(t, s.Close())
	<-s.Done()
	if _, err := os.Stat(s.LogFile()); err != nil || s.Dir() != dir {
		t.Errorf("after Close: %v, in %s", err, s.Dir())
	}
}

// A server that does not end when it is told to is killed, and that is told.
func TestStopKillsWhatDoesNotEnd(t *testing.T) {
	dir := t.TempDir()
	s := must[*Server](t)(launch(t.Context(), "shell", dir, 1, shell("trap '' TERM; echo >deaf; while :; do sleep 1; done",
		func(context.Context) error {
			_, err := os.Stat(filepath.Join(dir, "deaf"))
			return err
		})))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error is %v, want that it was killed", err)
	}
	<-s.Done()
}
