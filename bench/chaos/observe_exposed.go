//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// exposed looks, some times a second, at what a kill of each worker would have
// let be sent again just then: pushes that the simulator has accepted from it
// and that no row tells of. The rows are read after the pushes, so what is
// found without one was without one.
type exposed struct {
	world    *world
	arrivals *arrivals
	status   *statusReader

	seen   int   // of arrivals.entries; touched by run only, as all that follows
	open   []int // indexes there of what had no row when it was looked at last
	bounds map[*fleet.Process]printed

	mu      sync.Mutex
	entries []invariants.Exposure // guarded by mu
	last    error                 // guarded by mu; why the last look failed
}

// printed is what a worker says of itself at its start.
type printed struct {
	pushes int
	memory int64
}

const (
	exposedPause = 200 * time.Millisecond
	// booting is how long a new process does not send for certain: what comes in
	// the name of its slot until then is of the one before.
	booting = 300 * time.Millisecond
)

// run looks until ctx ends.
func (x *exposed) run(ctx context.Context) {
	ticker := time.NewTicker(exposedPause)
	defer ticker.Stop()
	for {
		err := x.look(ctx)
		x.mu.Lock()
		if ctx.Err() == nil {
			x.last = err
		}
		x.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// look looks once. While the store is away nothing can be said, but as soon as
// it is back.
func (x *exposed) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	began := map[string]time.Time{}
	running := map[string]*fleet.Process{}
	for _, s := range x.world.workers() {
		p, started := s.now()
		if began[s.name] = started.Add(booting); p != nil && p.Running() {
			running[s.name] = p
		}
	}
	at := time.Now()
	pushes := x.accepted(began)
	ids := make([]string, len(pushes))
	for i := range pushes {
		ids[i] = pushes[i].ID
	}
	slices.Sort(ids)
	rows, err := x.status.of(ctx, slices.Compact(ids))
	if err != nil {
		return err
	}
	counts := map[string]int{}
	open := x.open[:0]
	for i, s := range pushes {
		if !invariants.Covered(rows[s.ID], s.Device, s.At) {
			counts[s.Worker]++
			open = append(open, x.open[i])
		}
	}
	x.open = open
	for name, p := range running {
		said, ok := x.printed(ctx, p)
		if !ok || !p.Running() {
			continue // it is just starting, or ended meanwhile
		}
		x.add(invariants.Exposure{Worker: name, At: at, Exposed: counts[name], Bound: said.pushes, Bytes: resident(p.PID()), MemoryBound: said.memory})
	}
	return nil
}

func (x *exposed) add(e invariants.Exposure) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.entries = append(x.entries, e)
}

// accepted is what was accepted and had no row yet, of processes that have not
// ended. It brings open up to date with that.
func (x *exposed) accepted(began map[string]time.Time) (list []invariants.Send) {
	x.arrivals.mu.Lock()
	defer x.arrivals.mu.Unlock()
	for ; x.seen < len(x.arrivals.entries); x.seen++ {
		x.open = append(x.open, x.seen)
	}
	x.open = slices.DeleteFunc(x.open, func(i int) bool {
		e := &x.arrivals.entries[i]
		return !e.Accepted || e.Undone || e.At.Before(began[e.Worker])
	})
	for _, i := range x.open {
		list = append(list, x.arrivals.entries[i])
	}
	return list
}

// printed is what a process says of itself; ok is false until it is ready: before
// that, not all of its lanes may be open, and its bound is of those that are.
func (x *exposed) printed(ctx context.Context, p *fleet.Process) (said printed, ok bool) {
	if said, ok = x.bounds[p]; ok {
		return said, true
	}
	if ready, _, err := p.Ready(ctx); err != nil || !ready {
		return said, false
	}
	m, err := p.Metrics(ctx)
	if err != nil {
		return said, false
	}
	said.pushes = int(m.Sum("push_duplicate_bound"))
	for line := range strings.Lines(p.Log()) {
		var entry struct {
			Msg string
			MiB int64 `json:"memory_bound_mib"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil && entry.MiB > 0 {
			said.memory = entry.MiB << 20
			break
		}
	}
	x.bounds[p] = said
	return said, true
}

// resident is a process's memory in bytes; 0 where that cannot be seen.
func resident(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// finish looks once more where the last look failed, until it is one: the store may have been
// away for a moment just then. run has ended.
func (x *exposed) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	for x.failed() && ctx.Err() == nil {
		err := x.look(ctx)
		x.mu.Lock()
		x.last = err
		x.mu.Unlock()
		hold(ctx, statusPause)
	}
}

func (x *exposed) failed() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.last != nil
}

// close seals the ledger, if the last look was one.
func (x *exposed) close() invariants.Ledger[invariants.Exposure] {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last != nil {
		return invariants.Ledger[invariants.Exposure]{Entries: x.entries, Missing: x.last.Error()}
	}
	return invariants.Seal(x.entries)
}
