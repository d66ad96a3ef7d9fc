//go:build linux

package whole

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
)

// account is what everything had used up at one moment.
type account struct {
	at     time.Time
	cpu    map[string]time.Duration
	pushes int
}

func takeAccount(f *fleet.Fleet, pids map[string]int) (*account, error) {
	a := &account{at: time.Now(), cpu: make(map[string]time.Duration)}
	for name, pid := range pids {
		used, err := cpuTime(pid)
		if err != nil {
			return nil, fmt.Errorf("processor time of %s: %w", name, err)
		}
		a.cpu[name] = used
	}
	totals := f.Sim.Ledger().Totals().Providers
	a.pushes = int(totals["apns"].Accepted + totals["fcm"].Accepted)
	return a, nil
}

// tick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every Linux
// that Go runs on.
const tick = 10 * time.Millisecond

// cpuTime is the user and system time of a process, with all its threads
// (proc(5), fields 14 and 15 of stat).
func cpuTime(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses and may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// peakRSS is the most memory a process has had resident so far, in MB (proc(5),
// VmHWM of status).
func peakRSS(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			return kb >> 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}
