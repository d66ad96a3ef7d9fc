package main

import (
	"errors"
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryShare is what part of its container's memory Go may use before its collector
// works harder: the rest is for what Go does not count.
const memoryShare = 0.9

// limitMemory sets Go's memory limit from that of the container, which allowed returns,
// unless GOMEMLIMIT has set one. need is the most that the process may need, in bytes; 0
// = not known. It is called once, before anything runs.
func limitMemory(log *slog.Logger, allowed memlimit.Provider, need int64) {
	limit, err := memlimit.Set(memlimit.WithProvider(allowed), memlimit.WithRatio(memoryShare))
	switch {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, memlimit.ErrNoCgroup):
	case err != nil:
		log.Warn("cannot read the memory limit of the container; set GOMEMLIMIT", "error", err)
	case limit == math.MaxInt64: // nobody limits it
	case need > limit:
		log.Warn("memory limit is less than what may be needed: under a full load the kernel may end this process", "limit_mib", limit>>20, "memory_bound_mib", need>>20)
	default:
		log.Info("memory limit", "limit_mib", limit>>20)
	}
}
