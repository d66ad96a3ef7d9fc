//go:build linux

package send

import (
	"runtime"
	"time"

	"github.com/pushfleet/pushfleet/bench/usage"
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
	if a.machine, err = usage.Machine(); err != nil {
		return nil, err
	}
	if server != 0 {
		if a.server, err = usage.CPU(server); err != nil {
			return nil, err
		}
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	a.allocations = memory.Mallocs
	if a.cpu, err = usage.OwnCPU(); err != nil {
		return nil, err
	}
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
	f.Others = usage.Others(after.at.Sub(before.at), after.machine-before.machine, after.cpu-before.cpu, after.server-before.server)
	f.P50, f.P99 = after.latencies.since(&before.latencies)
	return f
}

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
