//go:build linux

// Package usage is what processes of this machine, and the machine itself, have used so far: processor time and
// memory, as Linux tells it in /proc. The benches measure with it.
package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of processor time in /proc: USER_HZ, which is 100 on every Linux
// that Go runs on.
const tick = 10 * time.Millisecond

// CPU is the user and system time of a process, with all its threads.
func CPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	used, err := cpuOf(string(stat))
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return used, nil
}

// cpuOf reads fields 14 and 15 of /proc/PID/stat (proc(5)).
func cpuOf(stat string) (time.Duration, error) {
	// The second field is the command in parentheses and may hold anything.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("its stat has %d fields behind the command", len(fields))
	}
	return sum(fields[11:13])
}

// Compilers is the user and system time of each thread of a process in which Java
// compiles, by thread. Those that have ended are not among them: Java ends some when
// there is little to do.
func Compilers(pid int) (map[int]time.Duration, error) {
	used, err := threads(fmt.Sprintf("/proc/%d/task", pid), "C1 Compiler", "C2 Compiler")
	if err != nil {
		return nil, fmt.Errorf("threads of process %d: %w", pid, err)
	}
	return used, nil
}

// Compiling is on how many cores Java compiled in a time, by what Compilers said before and
// after it: what a server does for as long as it is young. Threads that have ended meanwhile do
// not count.
func Compiling(took time.Duration, before, after map[int]time.Duration) float64 {
	var used time.Duration
	for id, t := range after {
		used += t - before[id]
	}
	return used.Seconds() / took.Seconds()
}

// threads is the time of the threads in a folder whose names begin so.
func threads(folder string, names ...string) (map[int]time.Duration, error) {
	list, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	used := make(map[int]time.Duration)
	for _, entry := range list {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			return nil, err
		}
		stat, err := os.ReadFile(filepath.Join(folder, entry.Name(), "stat"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has ended
		} else if err != nil {
			return nil, err
		}
		_, name, _ := strings.Cut(string(stat), "(")
		if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(name, n) }) {
			continue
		}
		if used[id], err = cpuOf(string(stat)); err != nil {
			return nil, err
		}
	}
	return used, nil
}

// OwnCPU is the user and system time of this process, to the microsecond.
func OwnCPU() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, fmt.Errorf("asking for our own processor time: %w", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}

// Machine is the time that all processors of the machine together were not idle.
func Machine() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("processor time of the machine: %w", err)
	}
	busy, err := busyOf(string(stat))
	if err != nil {
		return 0, fmt.Errorf("processor time of the machine: %w", err)
	}
	return busy, nil
}

// busyOf reads the first line of /proc/stat: cpu user nice system idle iowait irq softirq steal guest guest_nice.
func busyOf(stat string) (time.Duration, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return 0, fmt.Errorf("/proc/stat says %q", line)
	}
	return sum(append(fields[1:4:4], fields[6:9]...)) // guests are in user and nice
}

func sum(fields []string) (time.Duration, error) {
	var ticks int64
	for _, f := range fields {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// Others is how many processors were busy, in a time that took so long, with none of the
// processes whose processor time these are.
func Others(took, machine time.Duration, of ...time.Duration) float64 {
	for _, used := range of {
		machine -= used
	}
	return max(0, machine.Seconds()/took.Seconds())
}

// Memory is what a process has resident, in MiB.
func Memory(pid int) (float64, error) { return memory(pid, "VmRSS:") }

// PeakMemory is the most that a process has had resident, in MiB. It is that of its program; rusage's also
// counts what started it.
func PeakMemory(pid int) (float64, error) { return memory(pid, "VmHWM:") }

func memory(pid int, name string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	mib, err := memoryOf(string(status), name)
	if err != nil {
		return 0, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	return mib, nil
}

// memoryOf reads a line of /proc/PID/status (proc(5)), which is in KiB.
func memoryOf(status, name string) (float64, error) {
	for l := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(l, name); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				kib, err := strconv.Atoi(words[0])
				return float64(kib) / 1024, err
			}
		}
	}
	return 0, fmt.Errorf("its status has no %s", name)
}
