package memory

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestMemoryLimit(t *testing.T) {
	const gib = 1 << 30
	for _, tt := range []struct {
		reason  string
		env     string
		allowed memlimit.Provider
		need    int64
		want    int64  // the limit afterwards
		says    string // in the log; empty = nothing
	}{
		{"nine tenths of the container's", "", memlimit.Limit(10 * gib), 5 * gib, 9 * gib, "level=INFO msg=\"memory limit\" limit_mib=9216"},
		{"a container that is too small", "", memlimit.Limit(2 * gib), 5 * gib, gib * 18 / 10, "level=WARN msg=\"memory limit is less than what may be needed"},
		{"what it needs is not known", "", memlimit.Limit(10 * gib), 0, 9 * gib, "limit_mib=9216"},
		{"the operator's word", "1GiB", memlimit.Limit(10 * gib), 0, gib, "limit_mib=1024"},
		{"nobody limits it", "", func() (uint64, error) { return 0, memlimit.ErrNoLimit }, 5 * gib, math.MaxInt64, ""},
		{"no such thing here", "", func() (uint64, error) { return 0, memlimit.ErrCgroupsNotSupported }, 5 * gib, math.MaxInt64, ""},
		{"it cannot be read", "", func() (uint64, error) { return 0, errors.New("denied") }, 5 * gib, math.MaxInt64, "level=WARN msg=\"cannot read the memory limit"},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			was := debug.SetMemoryLimit(math.MaxInt64)
			defer debug.SetMemoryLimit(was)
			t.Setenv("GOMEMLIMIT", tt.env)
			if tt.env == "" {
				os.Unsetenv("GOMEMLIMIT") // which the end of the test undoes
			} else {
				debug.SetMemoryLimit(tt.want) // as Go does at its start
			}
			var said bytes.Buffer
			limit(slog.New(slog.NewTextHandler(&said, nil)), tt.allowed, tt.need)
			if got := debug.SetMemoryLimit(-1); got/1000 != tt.want/1000 {
				t.Errorf("got a limit of %d, want %d", got, tt.want)
			}
			if got := said.String(); !strings.Contains(got, tt.says) || tt.says == "" && got != "" {
				t.Errorf("got %q, want %q", got, tt.says)
			}
		})
	}
}
