//go:build linux

package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/parts"
)

// sliceSeconds is how long one CPU profile takes. One after the other is taken, because nobody knows when the run ends
// and a profile that is cut off says nothing.
const sliceSeconds = 1

// cpuProfile adds up CPU profiles of the worker.
type cpuProfile struct {
	stopping chan struct{} // closed by stop
	slices   sync.WaitGroup

	// Written by the goroutine, read after it has ended.
	sums map[string]int64 // ns by part
	err  error
}

// profileCPU begins.
func profileCPU(ctx context.Context, worker *fleet.Process) *cpuProfile {
	p := &cpuProfile{stopping: make(chan struct{}), sums: make(map[string]int64)}
	p.slices.Go(func() {
		for {
			select {
			case <-p.stopping:
				return
			default:
			}
			if p.err = p.slice(ctx, worker); p.err != nil {
				return
			}
		}
	})
	return p
}

func (p *cpuProfile) slice(ctx context.Context, worker *fleet.Process) error {
	taken, err := worker.Profile(ctx, fmt.Sprintf("profile?seconds=%d", sliceSeconds))
	if err != nil {
		return err
	}
	sums, err := parts.CPU(taken)
	for name, ns := range sums {
		p.sums[name] += ns
	}
	return err
}

// stop waits for the slice that is under way, and is the processor time by part.
func (p *cpuProfile) stop() (map[string]int64, error) {
	close(p.stopping)
	p.slices.Wait()
	return p.sums, p.err
}

// allocations are those of a worker since it began, by a sample.
type allocations struct{ byPart, byOwner map[string]int64 }

func takeAllocations(ctx context.Context, worker *fleet.Process) (a allocations, err error) {
	taken, err := worker.Profile(ctx, "allocs")
	if err != nil {
		return a, err
	}
	if a.byPart, err = parts.Objects(taken); err != nil {
		return a, err
	}
	a.byOwner, err = parts.Owners(taken)
	return a, err
}
