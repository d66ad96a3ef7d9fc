//go:build linux

package send

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/deploy/local"
)

// The clients.
const (
	clientOurs          = "ours"      // the multiplexer alone, with requests made before
	clientOursAPNS      = "ours_apns" // providers/apns on top, which makes each
	clientAPNS2         = "apns2"     // which makes the payload of each push
	clientAPNS2Prebuilt = "apns2_prebuilt"
	clientNetHTTP       = "nethttp"
	clientReplay        = "replay"
	clientH2Load        = "h2load" // a program of its own
)

// drivers are the clients that run in this program. A driver keeps
// Connections x Streams pushes under way until ctx ends, then waits for what
// is under way, and tells c of each. It fails when it cannot start.
var drivers = map[string]func(ctx context.Context, s *Spec, c *tally) error{
	clientOurs:          driveOurs,
	clientOursAPNS:      driveOursAPNS,
	clientAPNS2:         driveAPNS2,
	clientAPNS2Prebuilt: driveAPNS2Prebuilt,
	clientNetHTTP:       driveNetHTTP,
	clientReplay:        driveReplay,
}

// Spec is the work of one client process.
type Spec struct {
	Client        string
	URL           string // of the simulator
	CAFile        string // with the certificate to trust
	Topic         string
	TeamID, KeyID string
	KeyFile       string // the .p8
	Connections   int
	Streams       int // of each connection
	WarmUp        time.Duration
	Measure       time.Duration
	Server        int    // process id of the simulator; 0 = this process
	Profile       string // file for a CPU profile; empty = none
}

func (s *Spec) tls() (*tls.Config, error) {
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate to trust: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", s.CAFile)
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// tally counts what became of a client's pushes. Its methods may be called by
// several goroutines at once.
type tally struct {
	answered  atomic.Int64
	latencies latencies
	failed    atomic.Int64

	mu    sync.Mutex
	first error // that a push failed with
}

// answer counts a push that was answered 200.
func (c *tally) answer(took time.Duration) {
	c.latencies.add(took, 1)
	c.answered.Add(1)
}

// fail counts a push that ended otherwise.
func (c *tally) fail(err error) {
	c.failed.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first = err
	}
}

func (c *tally) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		return nil
	}
	return fmt.Errorf("%d pushes failed, the first one: %w", c.failed.Load(), c.first)
}

// ServeClient is the whole of a client process: it reads what to do from in
// and writes the figures to out.
func ServeClient(ctx context.Context, in io.Reader, out io.Writer) error {
	var s Spec
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return fmt.Errorf("reading what to measure: %w", err)
	}
	f, err := drive(ctx, &s)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(f); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

// drive runs one client in this process and measures it. A push that fails
// makes the whole measurement fail.
func drive(ctx context.Context, s *Spec) (*Figures, error) {
	driver, ok := drivers[s.Client]
	if !ok {
		return nil, fmt.Errorf("there is no client %q", s.Client)
	}
	var c tally
	pushing, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- driver(pushing, s, &c) }()
	f, err := watch(ctx, s, &c, ended)
	stop()
	if !errors.Is(err, errEnded) {
		err = errors.Join(err, <-ended)
	}
	if failed := c.err(); failed != nil {
		err = failed // whatever else is its consequence
	}
	if err != nil {
		return nil, err
	}
	if f.RSS, err = usage.PeakMemory(os.Getpid()); err != nil {
		return nil, err
	}
	return f, nil
}

// errEnded is a driver that ended before it was told to.
var errEnded = errors.New("the client ended")

// readyTime is how long a client may take to connect and to be answered once
// on every stream.
const (
	readyTime  = 60 * time.Second
	readyPause = 5 * time.Millisecond
)

// ready waits until as many pushes are answered as there are streams: from
// then on the client is warming up, on however slow a machine.
func ready(ctx context.Context, s *Spec, c *tally, ended <-chan error) error {
	return c.reaches(ctx, int64(s.Connections*s.Streams), ended)
}

// reaches waits until n pushes are answered, or one failed.
func (c *tally) reaches(ctx context.Context, n int64, ended <-chan error) error {
	for until := time.Now().Add(readyTime); c.answered.Load() < n; {
		if err := c.err(); err != nil {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("%d pushes were answered, not %d, in %v", c.answered.Load(), n, readyTime)
		}
		if err := sleep(ctx, readyPause, ended); err != nil {
			return err
		}
	}
	return nil
}

// watch takes the accounts after the warm-up and at the end.
func watch(ctx context.Context, s *Spec, c *tally, ended <-chan error) (*Figures, error) {
	if err := ready(ctx, s, c, ended); err != nil {
		return nil, err
	}
	if err := sleep(ctx, s.WarmUp, ended); err != nil {
		return nil, err
	}
	before, err := take(c, s.Server)
	if err != nil {
		return nil, err
	}
	if s.Profile != "" {
		file, err := os.Create(s.Profile)
		if err != nil {
			return nil, fmt.Errorf("profiling: %w", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return nil, fmt.Errorf("profiling: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	minutes := make([]float64, 0, 1+s.Measure/time.Minute)
	for left := s.Measure; left > 0; left -= time.Minute {
		if err := sleep(ctx, min(left, time.Minute), ended); err != nil {
			return nil, err
		}
		if left < time.Minute {
			break
		}
		now, err := usage.Memory(os.Getpid())
		if err != nil {
			return nil, err
		}
		minutes = append(minutes, now)
	}
	// On a starved machine a short time may pass without an answer; that is no
	// rate, so the time ends with the first one.
	if err := c.reaches(ctx, before.answered+1, ended); err != nil {
		return nil, err
	}
	after, err := take(c, s.Server)
	if err != nil {
		return nil, err
	}
	f := figures(before, after)
	f.RSSByMinute, f.Memory = minutes, growth(minutes)
	return f, nil
}

func sleep(ctx context.Context, d time.Duration, ended <-chan error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case err := <-ended:
		return errors.Join(errEnded, err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// follow waits for a client to end and tells of its memory every minute. It
// ends the client when ctx ends.
func follow(ctx context.Context, o *Options, p *local.Process, name string) error {
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for n := 1; ; n++ {
		select {
		case <-p.Done():
			return nil
		case <-ctx.Done():
			_ = p.Signal(syscall.SIGKILL) // it may be gone already
			<-p.Done()
			return context.Cause(ctx)
		case <-minute.C:
			if now, err := usage.Memory(p.PID()); err == nil { // or it is ending
				o.Progress("%s: minute %d, %.1f MiB", name, n, now)
			}
		}
	}
}

// runClient measures one client in a process of its own.
func runClient(ctx context.Context, o *Options, s Spec, name string) (*Figures, error) {
	if o.Profiles != "" {
		s.Profile = filepath.Join(o.Profiles, name+".pprof")
	}
	spec, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(o.Client[0], o.Client[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(spec), &stdout, &stderr
	p, err := local.StartProcess(cmd)
	if err != nil {
		return nil, err
	}
	if err := follow(ctx, o, p, name); err != nil {
		return nil, err
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	f := new(Figures)
	if err := json.Unmarshal(stdout.Bytes(), f); err != nil {
		return nil, fmt.Errorf("reading the figures: %w", err)
	}
	return f, nil
}
