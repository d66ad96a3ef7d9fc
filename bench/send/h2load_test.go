//go:build linux

package send

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/sim"
)

// said is what h2load 1.52 prints at the end.
const said = `starting benchmark...
Warm-up started for thread #0.
Main benchmark duration is started for thread #0.

finished in 6.00s, 321098.50 req/s, 8.55MB/s
requests: 1926591 total, 1936591 started, 1926591 done, 1926591 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 1926591 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 51.32MB (53812345) total, 0B (0) headers (space savings 0.00%), 0B (0) data
                     min         max         mean         sd        +/- sd
time for request:     1.21ms     61.31ms     28.02ms      9.10ms    70.01%
`

func TestReadH2Load(t *testing.T) {
	f, err := readH2Load(said)
	if err != nil || f.PushesPerSecond != 321098.5 || f.P50 != nil || f.P99 != nil || f.Allocations != nil {
		t.Errorf("%+v, %v", f, err)
	}
	for why, change := range map[string][2]string{
		"not understood": {"finished", "ended"},
		"failures":       {"0 timeout", "1 timeout"},
		"had failures":   {"0 5xx", "7 5xx"},
	} {
		if _, err := readH2Load(strings.Replace(said, change[0], change[1], 1)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("want %q, got %v", why, err)
		}
	}
}

// A stand-in for h2load sees what it is to send: all devices, and the body.
func TestRunH2Load(t *testing.T) {
	_, s := inProcess(t, sim.Faults{})
	dir := t.TempDir()
	script := `#!/bin/sh
for a in "$@"; do
  case $a in
  --input-file=*) [ "$(grep -c "^` + s.URL + `/3/device/" "${a#*=}")" = 20 ] || exit 7 ;;
  --threads=1) threads=1 ;;
  --data=*) grep -q '"pf_id"' "${a#*=}" || exit 8 ;;
  esac
done
[ -z "$threads" ] || [ "` + strconv.Itoa(runtime.NumCPU()) + `" = 1 ] || exec sed s/321098.50/300000.00/ <<'END'
` + said + `END
cat <<'END'
` + said + `END
`
	if err := os.WriteFile(filepath.Join(dir, "h2load"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	var calls int64
	received := func(context.Context) (int64, error) { calls++; return calls * 1000, nil }
	o := &Options{Progress: t.Logf}
	f, err := bestH2Load(t.Context(), o, s, received)
	if err != nil || f.PushesPerSecond != 321098.5 {
		t.Errorf("%+v, %v", f, err)
	}
	// Here more threads help it, up to one a connection.
	if want := min(runtime.NumCPU(), s.Connections); f != nil && f.Threads != want {
		t.Errorf("the figures of %d threads, want those of %d", f.Threads, want)
	}
	if calls%2 != 0 || calls == 0 {
		t.Errorf("asked %d times, want before and after each run", calls)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := bestH2Load(t.Context(), o, s, received); err != errNotInstalled {
		t.Errorf("without it: %v", err)
	}
}

// What is interrupted is killed and waited for.
func TestRunWatchedEnds(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, _, err := runWatched(ctx, exec.Command("sleep", "1000")); err == nil || err.Error() != "enough" {
		t.Errorf("got %v", err)
	}
	if left := children(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	used, _, err := runWatched(t.Context(), exec.Command("sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"))
	if err != nil || used <= 0 {
		t.Errorf("%v of processor time, %v", used, err)
	}
}
