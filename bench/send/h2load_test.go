//go:build linux

package send

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/deploy/local"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// What h2load 1.52 prints: when its main phase begins, when that is over, and at
// the end.
const (
	saidBefore = `starting benchmark...
Warm-up started for thread #0.
Warm-up phase is over for thread #0.
Main benchmark duration is started for thread #0.
`
	saidOver = `Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0
`
	saidAtEnd = `
finished in 6.00s, 321098.50 req/s, 8.55MB/s
requests: 1926591 total, 1936591 started, 1926591 done, 1926591 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 1926591 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 51.32MB (53812345) total, 0B (0) headers (space savings 0.00%), 0B (0) data
                     min         max         mean         sd        +/- sd
time for request:     1.21ms     61.31ms     28.02ms      9.10ms    70.01%
`
)

func TestReadH2Load(t *testing.T) {
	said := saidBefore + saidOver + saidAtEnd
	if itself, err := readH2Load(said); err != nil || itself != 321098.5 {
		t.Errorf("%v, %v", itself, err)
	}
	for why, change := range map[string][2]string{
		"not understood": {"finished", "ended"},
		"failures":       {"0 timeout", "1 timeout"},
		"had failures":   {"0 5xx", "7 5xx"},
	} {
		if _, err := readH2Load(strings.Replace(said, change[0], change[1], 1)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("got %v, want %q", err, why)
		}
	}
}

// The measurement may begin once every thread is in its main phase.
func TestPhases(t *testing.T) {
	begun := func(p *phases) bool {
		select {
		case <-p.main:
			return true
		default:
			return false
		}
	}
	p := newPhases(2)
	for _, step := range []struct {
		says        string
		begun, over bool
	}{
		{"Warm-up started for thread #0.\n", false, false},
		{"Main benchmark duration is started for thread #0.\n", false, false},
		{"Main benchmark dura", false, false}, // in two pieces
		{"tion is started for thread #1.\n", true, false},
		{"Main benchmark duration is over for thread #1. Stopping all clients.\n", true, true},
	} {
		if _, err := io.WriteString(p, step.says); err != nil {
			t.Fatal(err)
		}
		if begun(p) != step.begun || p.over() != step.over {
			t.Errorf("after %q: begun %v, over %v", step.says, begun(p), p.over())
		}
	}
}

// standIn puts a script on the PATH as h2load.
func standIn(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "h2load"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// A stand-in for h2load sees what it is to send: all devices, and the body. What
// counts is what the simulator received while it was in its main phase: not what
// came before, and not what h2load says of itself.
func TestRunH2Load(t *testing.T) {
	_, s := inProcess(t, sim.Faults{})
	again := filepath.Join(t.TempDir(), "again") // each run waits until it is there
	begun := filepath.Join(t.TempDir(), "begun") // each run's main phase
	standIn(t, `
threads=1
for a in "$@"; do
  case $a in
  --input-file=*) [ "$(grep -c "^`+s.URL+`/3/device/" "${a#*=}")" = 20 ] || exit 7 ;;
  --threads=*) threads=${a#*=} ;;
  --data=*) grep -q '"pf_id"' "${a#*=}" || exit 8 ;;
  --duration=*) [ "${a#*=}" = 3 ] || exit 9 ;; # the measurement and the slack, in whole seconds
  esac
done
sleep 0.2 # it connects, and warms up
: > `+begun+`.$threads
cat <<'END'
`+saidBefore+`END
[ $threads = 1 ] || echo 'Main benchmark duration is started for thread #1.'
until [ -e `+again+`.$threads ]; do sleep 0.01; done
cat <<'END'
`+saidOver+saidAtEnd+`END
`)
	// Before its main phase 5,000 pushes have come, and in it 1,000 on one thread
	// and 2,000 on two.
	runs, calls, total := 0, 0, int64(5000)
	received := func(context.Context) (int64, error) {
		threads := "1"
		if calls++; calls > 2 {
			threads = strconv.Itoa(min(runtime.NumCPU(), s.Connections))
		}
		if calls%2 == 1 {
			_, err := os.Stat(begun + "." + threads)
			return total, err // it must not be asked before
		}
		runs++
		total += int64(runs) * 1000
		return total, nil
	}
	var rates []string
	o := &Options{Progress: func(format string, args ...any) {
		if strings.Contains(format, "waiting for its end") {
			if err := os.WriteFile(again+"."+strconv.Itoa(args[0].(int)), nil, 0o600); err != nil {
				t.Error(err)
			}
			return
		}
		if !strings.Contains(format, "its own") || args[2] != 321098.5 {
			t.Errorf("it says %q, %v", format, args)
		}
		rates = append(rates, strconv.FormatFloat(args[1].(float64), 'f', -1, 64))
	}}
	f, err := bestH2Load(t.Context(), o, s, received)
	if err != nil {
		t.Fatal(err)
	}
	if most := float64(runs) * 1000 / s.Measure.Seconds(); f.PushesPerSecond > most || f.PushesPerSecond <= 0 || math.IsNaN(f.PushesPerSecond) {
		t.Errorf("%v pushes/s, want at most the %v of the measurement alone", f.PushesPerSecond, most)
	}
	if f.P50 != nil || f.P99 != nil || f.Allocations != nil || f.RSS <= 0 {
		t.Errorf("%+v", f)
	}
	if calls != 2*runs || runs != len(rates) || calls == 0 {
		t.Errorf("asked %d times in %d runs, want at the beginning and at the end of each", calls, runs)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := bestH2Load(t.Context(), o, s, received); err != errNotInstalled {
		t.Errorf("without it: %v", err)
	}
}

// What is no measurement within the main phase is none.
func TestH2LoadThatMeasuresNothing(t *testing.T) {
	begun := "cat <<'END'\n" + saidBefore + "END\n"
	for why, tt := range map[string]struct{ script, want string }{
		"never in its main phase": {"echo connect: refused; exit 3", "connect: refused"},
		"ends while measured":     {begun + "echo and gone", "and gone"},
		"over while measured":     {begun + "echo 'Main benchmark duration is over for thread #0.'; exec sleep 3", "too slow"},
		"had failures": {begun + "until [ -e $AGAIN ]; do sleep 0.01; done; cat <<'END'\n" + saidOver + strings.Replace(saidAtEnd, "0 failed", "3 failed", 1) + "END\n",
			"had failures"},
		"fails at the end": {begun + "until [ -e $AGAIN ]; do sleep 0.01; done; echo at the end; exit 4", "at the end"},
	} {
		t.Run(why, func(t *testing.T) {
			_, s := inProcess(t, sim.Faults{})
			again := filepath.Join(t.TempDir(), "again")
			t.Setenv("AGAIN", again)
			standIn(t, tt.script)
			total := int64(-1000)
			received := func(context.Context) (int64, error) {
				total += 1000
				return total, nil
			}
			measured := func(format string, _ ...any) {
				if strings.Contains(format, "waiting for its end") {
					if err := os.WriteFile(again, nil, 0o600); err != nil {
						t.Error(err)
					}
				}
			}
			if why == "ends while measured" {
				s.Measure = time.Minute
			}
			if _, err := bestH2Load(t.Context(), &Options{Progress: measured}, s, received); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if left := children(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// What is interrupted is killed and waited for, in its warm-up and in its main
// phase.
func TestH2LoadInterrupted(t *testing.T) {
	for phase, script := range map[string]string{"warm-up": "", "main phase": "cat <<'END'\n" + saidBefore + "END\n"} {
		_, s := inProcess(t, sim.Faults{})
		s.Measure = time.Hour
		standIn(t, script+"exec sleep 1000")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("enough"))
		_, err := bestH2Load(ctx, &Options{Progress: t.Logf}, s, func(context.Context) (int64, error) { return 0, nil })
		cancel()
		if err == nil || err.Error() != "enough" {
			t.Errorf("%s: got %v", phase, err)
		}
		if left := children(t); len(left) > 0 {
			t.Errorf("%s: left behind: %v", phase, left)
		}
	}
}

// The processor time is h2load's, and the pushes are what the simulator has.
func TestH2LoadsAccount(t *testing.T) {
	p, err := local.StartProcess(exec.Command("sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = p.Signal(syscall.SIGKILL) // it may be gone
		<-p.Done()
	}()
	r := &h2loadRun{spec: &Spec{Server: os.Getpid()}, received: func(context.Context) (int64, error) { return 7, nil }}
	a, err := r.take(t.Context(), p.PID())
	if err != nil {
		t.Fatal(err)
	}
	// One that sleeps has the same a moment later, and we have used more.
	if used, err := usage.CPU(p.PID()); err != nil || a.cpu != used || a.answered != 7 {
		t.Errorf("%v of processor time and %d pushes, want %v and 7 (%v)", a.cpu, a.answered, used, err)
	}
}
