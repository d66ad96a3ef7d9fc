//go:build linux

package gates

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/segments"
)

const (
	lookUpCount = 5_000_000
	hotNumber   = 1024 // numbers that are asked for by turns
	container   = 1 << 16
)

// lookUps measures one bitmap of each kind of container, and answers for the
// slowest.
func lookUps() (ns, allocs float64, err error) {
	var b segments.Builder
	const group = "containers"
	if err := b.AddGroup(group, false, segments.ByRecord); err != nil {
		return 0, 0, err
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, kind := range []struct {
		name   string
		member func(n int) bool
	}{
		{"array", func(int) bool { return random.IntN(32) == 0 }}, // up to 4,096 of 65,536
		{"bitmap", func(int) bool { return random.IntN(2) == 0 }},
		{"run", func(n int) bool { return n%8192 < 5000 }},
	} {
		var numbers []uint32
		for n := range container {
			if kind.member(n) {
				numbers = append(numbers, uint32(n))
			}
		}
		if err := b.AddUsers(group, kind.name, segments.UsersOf(numbers...)); err != nil {
			return 0, 0, err
		}
	}
	set, err := b.Build(1, time.Now())
	if err != nil {
		return 0, 0, fmt.Errorf("building segments: %w", err)
	}
	asked := make([]uint32, hotNumber)
	for i := range asked {
		asked[i] = random.Uint32N(container)
	}
	for segment := range set.Group(group).Segments() {
		took, made, err := lookUp(segment.Users, asked)
		if err != nil {
			return 0, 0, err
		}
		ns, allocs = max(ns, took), max(allocs, made)
	}
	return ns, allocs, nil
}

// lookUp is what one look-up takes of this thread's processor time, in ns, and
// how often it allocates.
func lookUp(u segments.Users, asked []uint32) (ns, allocs float64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	found := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, err := threadTime()
	if err != nil {
		return 0, 0, err
	}
	for i := range lookUpCount {
		if u.Contains(asked[i%hotNumber]) {
			found++
		}
	}
	end, err := threadTime()
	if err != nil {
		return 0, 0, err
	}
	runtime.ReadMemStats(&after)
	if found == 0 || found == lookUpCount {
		return 0, 0, fmt.Errorf("this is no measurement: %d of %d numbers are in the segment", found, lookUpCount)
	}
	// Whole allocations, as testing.AllocsPerRun has it: the runtime's own are
	// a few in millions.
	return float64(end-start) / lookUpCount, float64((after.Mallocs - before.Mallocs) / lookUpCount), nil
}

func threadTime() (time.Duration, error) {
	var used syscall.Rusage
	const thread = 1 // RUSAGE_THREAD of getrusage(2), which syscall does not name
	if err := syscall.Getrusage(thread, &used); err != nil {
		return 0, fmt.Errorf("asking for a thread's processor time: %w", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}
