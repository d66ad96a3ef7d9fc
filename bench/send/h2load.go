//go:build linux

package send

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local"
)

// errNotInstalled is a client that this machine does not have.
var errNotInstalled = errors.New("not installed")

// memoryPause is how often the memory of h2load is looked at.
const memoryPause = 100 * time.Millisecond

// bestH2Load measures h2load on one thread, which leaves the simulator a core
// on a machine of two, and on as many as there are cores, and returns the
// faster.
func bestH2Load(ctx context.Context, o *Options, s *Spec, received func(context.Context) (int64, error)) (*Figures, error) {
	program, err := exec.LookPath("h2load")
	if err != nil {
		return nil, errNotInstalled
	}
	var best *Figures
	for _, threads := range slices.Compact([]int{1, min(runtime.NumCPU(), s.Connections)}) {
		f, err := runH2Load(ctx, program, s, threads, received)
		if err != nil {
			return nil, err
		}
		o.Progress("h2load with %d threads: %.0f pushes/s", threads, f.PushesPerSecond)
		if best == nil || f.PushesPerSecond > best.PushesPerSecond {
			best = f
		}
	}
	return best, nil
}

// runH2Load measures h2load. It sends the same bodies to the same paths over
// as many connections and streams, as fast as they are answered, by time. It
// says nothing of percentiles.
func runH2Load(ctx context.Context, program string, s *Spec, threads int, received func(context.Context) (int64, error)) (*Figures, error) {
	dir, err := os.MkdirTemp("", "pushfleet-h2load-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	args, err := s.h2load(dir, threads)
	if err != nil {
		return nil, err
	}
	before, err := received(ctx)
	if err != nil {
		return nil, err
	}
	start, err := take(new(tally), s.Server)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	used, peak, err := runWatched(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("h2load: %w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	after, err := received(ctx)
	if err != nil {
		return nil, err
	}
	end, err := take(new(tally), s.Server)
	if err != nil {
		return nil, err
	}
	f, err := readH2Load(out.String())
	if err != nil {
		return nil, err
	}
	// The warm-up is in all three: the account of a process is from its start.
	n := float64(max(1, after-before))
	f.CPU, f.ServerCPU = microseconds(used)/n, microseconds(end.server-start.server)/n
	f.Others = others(end.at.Sub(start.at), end.machine-start.machine, used, end.server-start.server)
	f.RSS, f.Threads = peak, threads
	return f, nil
}

// h2load writes the list of paths and the body below dir, and returns the
// command line.
func (s *Spec) h2load(dir string, threads int) ([]string, error) {
	auth, err := s.authorization()
	if err != nil {
		return nil, err
	}
	var urls strings.Builder
	for _, d := range devices(s.Connections * s.Streams) {
		urls.WriteString(s.URL + devicePath + d.token + "\n")
	}
	list, payload := filepath.Join(dir, "urls"), filepath.Join(dir, "body")
	if err := errors.Join(os.WriteFile(list, []byte(urls.String()), 0o600), os.WriteFile(payload, []byte(body), 0o600)); err != nil {
		return nil, fmt.Errorf("writing what h2load sends: %w", err)
	}
	whole := func(d time.Duration) string { return strconv.Itoa(max(1, int(d.Round(time.Second).Seconds()))) }
	args := []string{
		"--threads=" + strconv.Itoa(threads), "--clients=" + strconv.Itoa(s.Connections), "--max-concurrent-streams=" + strconv.Itoa(s.Streams),
		"--duration=" + whole(s.Measure), "--warm-up-time=" + whole(s.WarmUp), "--input-file=" + list, "--data=" + payload,
	}
	for _, h := range []string{
		"authorization: " + auth, "apns-topic: " + s.Topic, "apns-push-type: " + pushType, "apns-priority: " + strconv.Itoa(priority),
		"apns-expiration: " + strconv.Itoa(expiration), "apns-id: " + devices(1)[0].id, // it has one for all
	} {
		args = append(args, "--header="+h)
	}
	return args, nil
}

// runWatched runs a command, which dies with this process, and returns the
// processor time that it used and the most memory it had, in MiB.
func runWatched(ctx context.Context, cmd *exec.Cmd) (used time.Duration, peak float64, err error) {
	p, err := local.StartProcess(cmd)
	if err != nil {
		return 0, 0, err
	}
	ticker := time.NewTicker(memoryPause)
	defer ticker.Stop()
	for {
		select {
		case <-p.Done():
			return p.CPU(), peak, p.Err()
		case <-ctx.Done():
			_ = p.Signal(syscall.SIGKILL) // it may be gone already
			<-p.Done()
			return 0, 0, context.Cause(ctx)
		case <-ticker.C:
			// It may end meanwhile: then the last look counts.
			if now, err := memory(p.PID(), memoryPeak); err == nil {
				peak = now
			}
		}
	}
}

var (
	h2loadRate   = regexp.MustCompile(`(?m)^finished in .*, ([0-9.]+) req/s`)
	h2loadFailed = regexp.MustCompile(`(?m)^requests: .* ([0-9]+) failed, ([0-9]+) errored, ([0-9]+) timeout`)
	h2loadCodes  = regexp.MustCompile(`(?m)^status codes: ([0-9]+) 2xx, 0 3xx, 0 4xx, 0 5xx`)
)

// readH2Load reads what h2load prints at the end.
func readH2Load(out string) (*Figures, error) {
	rate, failed := h2loadRate.FindStringSubmatch(out), h2loadFailed.FindStringSubmatch(out)
	if rate == nil || failed == nil {
		return nil, fmt.Errorf("what h2load said is not understood: %q", out)
	}
	if failed[1] != "0" || failed[2] != "0" || failed[3] != "0" || !h2loadCodes.MatchString(out) {
		return nil, fmt.Errorf("h2load had failures: %q", out)
	}
	perSecond, err := strconv.ParseFloat(rate[1], 64)
	if err != nil {
		return nil, fmt.Errorf("rate of h2load: %w", err)
	}
	return &Figures{PushesPerSecond: perSecond}, nil
}
