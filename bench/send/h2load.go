//go:build linux

package send

import (
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
	"time"
)

// errNotInstalled is a client that this machine does not have.
var errNotInstalled = errors.New("not installed")

// mainSlack is how much longer than the measurement h2load goes on, so that
// both ends of it are within its main phase.
const mainSlack = 2 * time.Second

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
		measured := func() { o.Progress("h2load with %d threads: measured; waiting for its end", threads) }
		f, itself, err := runH2Load(ctx, program, s, threads, received, measured)
		if err != nil {
			return nil, err
		}
		o.Progress("h2load with %d threads: %.0f pushes/s by the simulator's count; by its own %.0f over all of its main phase", threads, f.PushesPerSecond, itself)
		if best == nil || f.PushesPerSecond > best.PushesPerSecond {
			best = f
		}
	}
	return best, nil
}

// runH2Load measures h2load. It sends the same bodies to the same paths over
// as many connections and streams, as fast as they are answered, by time. Its
// start, its connecting and its warm-up are in none of the figures: they are
// what the simulator received, and the operating system's account, between two
// moments of its main phase. It says nothing of percentiles. itself is the rate
// that h2load gives. It calls measured once it has its figures and waits for
// h2load to end.
func runH2Load(ctx context.Context, program string, s *Spec, threads int, received func(context.Context) (int64, error), measured func()) (f *Figures, itself float64, err error) {
	dir, err := os.MkdirTemp("", "pushfleet-h2load-")
	if err != nil {
		return nil, 0, fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	args, err := s.h2load(dir, threads)
	if err != nil {
		return nil, 0, err
	}
	w := &h2loadRun{spec: s, received: received, measured: measured, output: newPhases(threads)}
	f, err = w.run(ctx, exec.Command(program, args...))
	if err != nil {
		return nil, 0, err
	}
	if itself, err = readH2Load(w.output.String()); err != nil {
		return nil, 0, err
	}
	f.Threads = threads
	return f, itself, nil
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
	whole := func(d time.Duration) string { return strconv.Itoa(max(1, int((d + time.Second - 1).Seconds()))) }
	args := []string{
		"--threads=" + strconv.Itoa(threads), "--clients=" + strconv.Itoa(s.Connections), "--max-concurrent-streams=" + strconv.Itoa(s.Streams),
		"--duration=" + whole(s.Measure+mainSlack), "--warm-up-time=" + whole(s.WarmUp), "--input-file=" + list, "--data=" + payload,
	}
	for _, h := range []string{
		"authorization: " + auth, "apns-topic: " + s.Topic, "apns-push-type: " + pushType, "apns-priority: " + strconv.Itoa(priority),
		"apns-expiration: " + strconv.Itoa(expiration), "apns-id: " + devices(1)[0].id, // it has one for all
	} {
		args = append(args, "--header="+h)
	}
	return args, nil
}

var (
	h2loadRate   = regexp.MustCompile(`(?m)^finished in .*, ([0-9.]+) req/s`)
	h2loadFailed = regexp.MustCompile(`(?m)^requests: .* ([0-9]+) failed, ([0-9]+) errored, ([0-9]+) timeout`)
	h2loadCodes  = regexp.MustCompile(`(?m)^status codes: ([0-9]+) 2xx, 0 3xx, 0 4xx, 0 5xx`)
)

// readH2Load reads what h2load prints at the end, and returns its rate: the
// answers of its main phase by the length that this was to have.
func readH2Load(out string) (perSecond float64, err error) {
	rate, failed := h2loadRate.FindStringSubmatch(out), h2loadFailed.FindStringSubmatch(out)
	if rate == nil || failed == nil {
		return 0, fmt.Errorf("what h2load said is not understood: %q", out)
	}
	if failed[1] != "0" || failed[2] != "0" || failed[3] != "0" || !h2loadCodes.MatchString(out) {
		return 0, fmt.Errorf("h2load had failures: %q", out)
	}
	if perSecond, err = strconv.ParseFloat(rate[1], 64); err != nil {
		return 0, fmt.Errorf("rate of h2load: %w", err)
	}
	return perSecond, nil
}
