//go:build linux

package send

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is what a client and its server had done and used at one moment.
type account struct {
	at          time.Time
	answered    int64
	cpu, server time.Duration
	machine     time.Duration // processor time of everything that runs here
	allocations uint64
	latencies   latencySums
}

// take looks at this process, whose pushes c counts, and at the server's.
func take(c *tally, server int) (*account, error) {
	a := &account{}
	var err error
	if a.machine, err = BusyTime(); err != nil {
		return nil, err
	}
	if server != 0 {
		if a.server, err = cpuTime(server); err != nil {
			return nil, err
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	a.allocations = memory.Mallocs
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return nil, fmt.Errorf("asking for our own processor time: %w", err)
	}
	a.cpu = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	a.latencies = c.latencies.sums()
	a.answered, a.at = c.answered.Load(), time.Now()
	return a, nil
}

// figures are what happened between two accounts.
func figures(before, after *account) *Figures {
	n := float64(max(1, after.answered-before.answered))
	allocations := float64(after.allocations-before.allocations) / n
	f := &Figures{
		PushesPerSecond: float64(after.answered-before.answered) / after.at.Sub(before.at).Seconds(),
		CPU:             microseconds(after.cpu-before.cpu) / n,
		ServerCPU:       microseconds(after.server-before.server) / n,
		Allocations:     &allocations,
	}
	f.Others = Others(after.at.Sub(before.at), after.machine-before.machine, after.cpu-before.cpu, after.server-before.server)
	f.P50, f.P99 = after.latencies.since(&before.latencies)
	return f
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// tick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every Linux
// that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime is the user and system time of a process, with all its threads
// (proc(5), fields 14 and 15 of stat).
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	// The second field is the command in parentheses and may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("processor time: /proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// BusyTime is the time that all processors of the machine together were not
// idle (proc(5), /proc/stat).
func BusyTime() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("processor time of the machine: %w", err)
	}
	line, _, _ := strings.Cut(string(stat), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal guest guest_nice
	if len(fields) < 9 {
		return 0, fmt.Errorf("processor time of the machine: /proc/stat says %q", line)
	}
	var ticks int64
	for i, f := range fields[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of the machine: %w", err)
		}
		if name := i + 1; name != 4 && name != 5 {
			ticks += n
		}
	}
	return time.Duration(ticks) * tick, nil
}

// Others is how many processors were busy with neither client nor server.
func Others(took, machine, client, server time.Duration) float64 {
	return max(0, (machine-client-server).Seconds()/took.Seconds())
}

// Lines of /proc/PID/status (proc(5)).
const (
	memoryPeak = "VmHWM:" // of this program; rusage's also counts what started it
	memoryNow  = "VmRSS:"
)

// memory reads one of those lines, in MiB.
func memory(pid int, line string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of the client: %w", err)
	}
	for l := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(l, line); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				kib, err := strconv.Atoi(words[0])
				return float64(kib) / 1024, err
			}
		}
	}
	return 0, fmt.Errorf("memory of the client: /proc/%d/status has no %s", pid, line)
}
