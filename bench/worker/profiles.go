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

	"github.com/pushfleet/pushfleet/bench/parts"
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

	team   workers
	before time.Duration // their processor time when it began

	// Written by the goroutine, read after it has ended.
	sums  map[string]int64 // ns by part
	taken [][]byte         // the slices
	err   error
}

// profileCPU begins. Without an error, stop ends it.
func profileCPU(ctx context.Context, team workers) (*cpuProfile, error) {
	before, err := team.cpu()
	if err != nil {
		return nil, err
	}
	p := &cpuProfile{stopping: make(chan struct{}), team: team, before: before, sums: make(map[string]int64)}
	p.slices.Go(func() {
		for seconds := firstSlice; p.err == nil; seconds = min(2*seconds, lastSlice) {
			select {
			case <-p.stopping:
				return
			default:
				p.err = p.slice(ctx, seconds)
			}
		}
	})
	return p, nil
}

// slice takes one of each worker, at the same time.
func (p *cpuProfile) slice(ctx context.Context, seconds int) error {
	taken, errs := make([][]byte, len(p.team)), make([]error, len(p.team))
	var all sync.WaitGroup
	for i, worker := range p.team {
		all.Go(func() { taken[i], errs[i] = worker.Profile(ctx, fmt.Sprintf("profile?seconds=%d", seconds)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, text := range taken {
		sums, err := parts.CPU(text)
		if err != nil {
			return err
		}
		for name, ns := range sums {
			p.sums[name] += ns
		}
	}
	p.taken = append(p.taken, taken...)
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
	after, err := p.team.cpu()
	if err = errors.Join(p.err, err); err != nil {
		return nil, 0, err
	}
	var all int64
	for _, ns := range p.sums {
		all += ns
	}
	return p.sums, float64(all) / float64(after-p.before), nil
}

// allocations are those of all workers since they began, by a sample.
type allocations struct {
	byPart, byOwner map[string]int64
	taken           [][]byte
}

// keep writes them into dir; an empty one keeps nothing.
func (a *allocations) keep(dir string) error {
	if dir == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, allocsFile))
	if err != nil {
		return fmt.Errorf("keeping the profile of allocations: %w", err)
	}
	return errors.Join(parts.Merge(f, a.taken), f.Close())
}

func takeAllocations(ctx context.Context, team workers) (a allocations, err error) {
	a.byPart, a.byOwner = make(map[string]int64), make(map[string]int64)
	for _, worker := range team {
		taken, err := worker.Profile(ctx, "allocs")
		if err != nil {
			return a, err
		}
		a.taken = append(a.taken, taken)
		for _, by := range []struct {
			sums map[string]int64
			read func([]byte) (map[string]int64, error)
		}{{a.byPart, parts.Objects}, {a.byOwner, parts.Owners}} {
			counts, err := by.read(taken)
			if err != nil {
				return a, err
			}
			for name, n := range counts {
				by.sums[name] += n
			}
		}
	}
	return a, nil
}
