//go:build linux

package worker

import (
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/pushfleet/pushfleet/bench/usage"
)

// account is the processor time that everything had used at one moment.
type account struct {
	at      time.Time
	cpu     map[string]time.Duration // by process, this one under its own name
	machine time.Duration
	// compilers are the threads in which Java compiles, whose time is in cpu too.
	compilers map[int]time.Duration
}

// measuring is the process that measures.
const measuring = "measuring"

func takeAccount(pids map[string][]int) (*account, error) {
	a := &account{at: time.Now(), cpu: make(map[string]time.Duration), compilers: make(map[int]time.Duration)}
	var err error
	if a.machine, err = usage.Machine(); err != nil {
		return nil, err
	}
	for name, all := range pids {
		for _, pid := range all {
			used, err := usage.CPU(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			a.cpu[name] += used
			compilers, err := usage.Compilers(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			maps.Copy(a.compilers, compilers)
		}
	}
	a.cpu[measuring], err = usage.CPU(os.Getpid())
	return a, err
}

// spent is the processor time of each process between two accounts for one of n notifications, in us.
func spent(before, after *account, n float64) map[string]float64 {
	each := make(map[string]float64)
	for name, used := range after.cpu {
		each[name] = (used - before.cpu[name]).Seconds() * 1e6 / n
	}
	return each
}

// others is how many cores were busy with something else between two accounts.
func others(before, after *account) float64 {
	var ours []time.Duration
	for name, used := range after.cpu {
		ours = append(ours, used-before.cpu[name])
	}
	return usage.Others(after.at.Sub(before.at), after.machine-before.machine, ours...)
}
