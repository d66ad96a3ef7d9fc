//go:build unix

package local

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// envParent makes the test binary the parent in TestChildDiesWithItsParent.
const envParent = "PUSHFLEET_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(envParent) != "" {
		parent()
	}
	os.Exit(m.Run())
}

// parent starts a child, tells its id and waits to be killed.
func parent() {
	child, err := StartProcess(exec.Command("sleep", "600"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Threads that come and go must not take the child with them.
	for range 20 {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		}()
	}
	fmt.Println(child.PID())
	<-child.Done()
	fmt.Println("the child ended first:", child.Err())
	os.Exit(1)
}

func TestChildDiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux kills a child whose parent was killed")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envParent+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	noError(t, err)
	noError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	noError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	noError(t, err)
	if !alive(pid) {
		t.Fatal("the child does not run")
	}
	noError(t, cmd.Process.Kill())
	_ = cmd.Wait() // "signal: killed"
	for deadline := time.Now().Add(time.Minute); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatal("the child outlived its parent")
		}
	}
}

// alive says whether a process runs; one that has ended and that nobody has
// waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestProcess(t *testing.T) {
	p := must[*Process](t)(StartProcess(exec.Command("sh", "-c", "sleep 600 & wait")))
	if p.ended() {
		t.Error("it has ended before it was told to")
	}
	noError(t, p.Signal(syscall.SIGTERM)) // the shell and its sleep
	<-p.Done()
	var exit *exec.ExitError
	if !errors.As(p.Err(), &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v, want SIGTERM", p.Err())
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if errors.Is(syscall.Kill(-p.PID(), 0), syscall.ESRCH) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("something of its group still runs")
		}
	}
	noError(t, p.Signal(syscall.SIGTERM)) // nobody is there, which is what was wanted

	if _, err := StartProcess(exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("starting what is not there: %v", err)
	}
}

// End asks first: a child that takes its time to end in order is not killed. One
// that does not listen is.
func TestEnd(t *testing.T) {
	for why, tt := range map[string]struct {
		script string
		within time.Duration
		gone   bool // before it is asked
		status string
	}{
		"it ends in order":   {`trap "exit 3" TERM; echo up; while :; do sleep 0.02; done`, time.Minute, false, "exit status 3"},
		"it does not listen": {`trap "" TERM; echo up; while :; do sleep 0.02; done`, 20 * time.Millisecond, false, "signal: killed"},
		"it is gone":         {`echo up`, time.Minute, true, "<nil>"},
	} {
		t.Run(why, func(t *testing.T) {
			r, w, err := os.Pipe()
			noError(t, err)
			defer r.Close()
			cmd := exec.Command("sh", "-c", tt.script)
			cmd.Stdout = w
			p, err := StartProcess(cmd)
			noError(t, errors.Join(err, w.Close()))
			_, err = bufio.NewReader(r).ReadString('\n') // its trap is set
			noError(t, err)
			if tt.gone {
				<-p.Done()
			}
			p.End(tt.within)
			if got := fmt.Sprint(p.Err()); got != tt.status {
				t.Errorf("it ended with %s, want %s", got, tt.status)
			}
		})
	}
}
