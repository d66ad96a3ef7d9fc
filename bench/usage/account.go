//go:build linux

package usage

import (
	"fmt"
	"maps"
	"time"
)

// Account is what some processes, and the machine, had used at one moment.
type Account struct {
	At      time.Time
	CPU     map[string]time.Duration // processor time of the processes of each name
	Machine time.Duration
	// Compilers are the threads in which Java compiles, whose time is in CPU too.
	Compilers map[int]time.Duration
}

// Take takes one of processes, by their names.
func Take(pids map[string][]int) (*Account, error) {
	a := &Account{At: time.Now(), CPU: make(map[string]time.Duration), Compilers: make(map[int]time.Duration)}
	var err error
	if a.Machine, err = Machine(); err != nil {
		return nil, err
	}
	for name, all := range pids {
		for _, pid := range all {
			used, err := CPU(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			a.CPU[name] += used
			compilers, err := Compilers(pid)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			maps.Copy(a.Compilers, compilers)
		}
	}
	return a, nil
}

// Spent is what was used between two accounts.
type Spent struct {
	Took      time.Duration
	CPU       map[string]time.Duration // by name
	Others    float64                  // cores busy with something else
	Compiling float64                  // cores on which Java compiled
}

// Since is what was used since an account before.
func (a *Account) Since(before *Account) *Spent {
	s := &Spent{Took: a.At.Sub(before.At), CPU: make(map[string]time.Duration)}
	var ours []time.Duration
	for name, used := range a.CPU {
		s.CPU[name] = used - before.CPU[name]
		ours = append(ours, s.CPU[name])
	}
	s.Others, s.Compiling = Others(s.Took, a.Machine-before.Machine, ours...), Compiling(s.Took, before.Compilers, a.Compilers)
	return s
}

// Each is the processor time of a process for one of n things, in us.
func (s *Spent) Each(name string, n float64) float64 { return s.CPU[name].Seconds() * 1e6 / n }
