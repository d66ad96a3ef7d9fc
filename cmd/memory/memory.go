// Package memory keeps a process within the memory of its container.
package memory

import (
	"errors"
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// share is what part of its container's memory Go may use before its collector
// works harder: the rest is for what Go does not count.
const share = 0.9

// Limit sets Go's memory limit from that of the container, unless GOMEMLIMIT has set one.
// need is the most that the process may need, in bytes; 0 = not known. It is called once,
// before anything runs.
func Limit(log *slog.Logger, need int64) { limit(log, memlimit.FromCgroup, need) }

// limit is Limit in a container that has what allowed returns.
func limit(log *slog.Logger, allowed memlimit.Provider, need int64) {
	most, err := memlimit.Set(memlimit.WithProvider(allowed), memlimit.WithRatio(share))
	switch {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported), errors.Is(err, memlimit.ErrNoCgroup):
	case err != nil:
		log.Warn("cannot read the memory limit of the container; set GOMEMLIMIT", "error", err)
	case most == math.MaxInt64: // nobody limits it
	case need > most:
		log.Warn("memory limit is less than what may be needed: under a full load the kernel may end this process", "limit_mib", most>>20, "memory_bound_mib", need>>20)
	default:
		log.Info("memory limit", "limit_mib", most>>20)
	}
}
