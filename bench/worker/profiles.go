//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/parts"
	"github.com/pushfleet/pushfleet/bench/usage"
)

// The CPU profiles take so many seconds: the first one, and, each twice as long as the one before, those that follow. One
// is taken after the other, because nobody knows when the run ends and a profile that is cut off says nothing. While one
// is written, nothing is seen.
const (
	firstSlice = 1
	lastSlice  = 4
)

// cpuProfile adds up CPU profiles of the worker.
type cpuProfile struct {
	stopping chan struct{} // closed by stop
	slices   sync.WaitGroup

	pid    int
	before time.Duration // processor time of the worker when it began

	// Written by the goroutine, read after it has ended.
	sums  map[string]int64 // ns by part
	taken [][]byte         // the slices
	err   error
}

// profileCPU begins. Without an error, stop ends it.
func profileCPU(ctx context.Context, worker *fleet.Process) (*cpuProfile, error) {
	before, err := usage.CPU(worker.PID())
	if err != nil {
		return nil, err
	}
	p := &cpuProfile{stopping: make(chan struct{}), pid: worker.PID(), before: before, sums: make(map[string]int64)}
	p.slices.Go(func() {
		for seconds := firstSlice; p.err == nil; seconds = min(2*seconds, lastSlice) {
			select {
			case <-p.stopping:
				return
			default:
				p.err = p.slice(ctx, worker, seconds)
			}
		}
	})
	return p, nil
}

func (p *cpuProfile) slice(ctx context.Context, worker *fleet.Process, seconds int) error {
	taken, err := worker.Profile(ctx, fmt.Sprintf("profile?seconds=%d", seconds))
	if err != nil {
		return err
	}
	sums, err := parts.CPU(taken)
	for name, ns := range sums {
		p.sums[name] += ns
	}
	if err != nil {
		return err
	}
	p.taken = append(p.taken, taken)
	return nil
}

// The names of the profiles that are kept, for go tool pprof.
const (
	cpuFile    = "cpu.pprof"
	allocsFile = "allocs.pprof"
)

// keep writes all slices as one profile into dir; an empty one keeps nothing. It is called after stop.
func (p *cpuProfile) keep(dir string) error {
	if dir == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, cpuFile))
	if err != nil {
		return fmt.Errorf("keeping the CPU profile: %w", err)
	}
	return errors.Join(parts.Merge(f, p.taken), f.Close())
}

// stop waits for the slice that is under way, and is the processor time by part, and what share of all that the worker
// used meanwhile it is: a little less than 1, for what is between two slices.
func (p *cpuProfile) stop() (byPart map[string]int64, share float64, err error) {
	close(p.stopping)
	p.slices.Wait()
	after, err := usage.CPU(p.pid)
	if err = errors.Join(p.err, err); err != nil {
		return nil, 0, err
	}
	var all int64
	for _, ns := range p.sums {
		all += ns
	}
	return p.sums, float64(all) / float64(after-p.before), nil
}

// allocations are those of a worker since it began, by a sample.
type allocations struct {
	byPart, byOwner map[string]int64
	taken           []byte
}

// keep writes them into dir; an empty one keeps nothing.
func (a *allocations) keep(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, allocsFile), a.taken, 0o644); err != nil {
		return fmt.Errorf("keeping the profile of allocations: %w", err)
	}
	return nil
}

func takeAllocations(ctx context.Context, worker *fleet.Process) (a allocations, err error) {
	if a.taken, err = worker.Profile(ctx, "allocs"); err != nil {
		return a, err
	}
	if a.byPart, err = parts.Objects(a.taken); err != nil {
		return a, err
	}
	a.byOwner, err = parts.Owners(a.taken)
	return a, err
}
