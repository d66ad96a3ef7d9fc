//go:build unix

package endtoend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/worker"
)

// envMortal, if set, turns the test binary into a process of fan-outs: a mortal as JSON.
const envMortal = "ENDTOEND_FANOUT"

// mortal is a process of fan-outs that kills itself at a point of the way, the nth time that it
// comes there, as the kernel does when memory is short: nothing is closed, and nobody told.
type mortal struct {
	Point string // empty = it lives until it is told to end
	Nth   int    // from 1
	Rate  int    // records a second; 0 = no bound
}

func (m *mortal) env() string {
	text, _ := json.Marshal(m) // it has nothing that could fail
	return envMortal + "=" + string(text)
}

// The session of these processes: a member that has died is missed so long.
const mortalSession = 2 * time.Second

// runMortal is the whole of such a process, and returns its status. The configuration is its
// last argument.
func runMortal(spec string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	var m mortal
	err := json.Unmarshal([]byte(spec), &m)
	if err == nil {
		err = m.run(ctx, os.Args[len(os.Args)-1], log)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Error("ended", "error", err)
		return 1
	}
	return 0
}

func (m *mortal) run(ctx context.Context, config string, log *slog.Logger) error {
	c, err := configs.Load(config, nil)
	if err != nil {
		return err
	}
	c.Kafka.SessionTimeout = mortalSession
	c.Gateway.Fanout.Rate = m.Rate
	t := &trap{point: m.Point, nth: m.Nth}
	wires := newWires(t.at, c.Lanes[0].Topic, fanout.ChunksTopic(c.Lanes[0].Name))
	return worker.RunFanout(ctx, worker.FanoutOptions{Config: c, Log: log, Metrics: prometheus.NewRegistry(), Dial: wires.dial,
		OpenStores: func(ctx context.Context) (worker.FanoutStores, error) { return m.open(ctx, c, t, log) }})
}

// open opens the stores as RunFanout does, behind the trap.
func (m *mortal) open(ctx context.Context, c *configs.Config, t *trap, log *slog.Logger) (worker.FanoutStores, error) {
	options, err := wiring.Cassandra(c, nil, log)
	if err != nil {
		return worker.FanoutStores{}, err
	}
	session, err := status.OpenSession(ctx, options)
	if err != nil {
		return worker.FanoutStores{}, err
	}
	notes, subscribed := fanout.NewTableNotes(session), subscriptions.New(subscriptions.Options{Tables: session})
	if err := errors.Join(notes.Check(ctx), subscribed.Check(ctx)); err != nil {
		session.Close()
		return worker.FanoutStores{}, err
	}
	return worker.FanoutStores{Notes: trappedNotes{notes, t}, Audience: trappedAudience{worker.TopicAudience(subscribed), t}, Ping: notes.Check, Close: session.Close}, nil
}

// trap kills this process at a point.
type trap struct {
	point string
	nth   int

	mu  sync.Mutex
	met int // guarded by mu
}

// deathNote is what a process writes right before it dies.
func deathNote(point string, nth int) string { return fmt.Sprintf("dies %s, time %d", point, nth) }

func (t *trap) at(point string) {
	if point != t.point {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.met++; t.met < t.nth {
		return
	}
	_, _ = fmt.Fprintln(os.Stderr, deathNote(t.point, t.met))
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal is there
}

// around calls do between the two points of a step.
func (t *trap) around(step string, do func() error) error {
	t.at("before " + step)
	err := do()
	if err == nil {
		t.at("after " + step)
	}
	return err
}

// trappedNotes are notes that the process may die at.
type trappedNotes struct {
	fanout.Notes
	trap *trap
}

func (n trappedNotes) Begin(ctx context.Context, j *fanout.Job) (first *fanout.Job, err error) {
	err = n.trap.around("begin", func() error {
		first, err = n.Notes.Begin(ctx, j)
		return err
	})
	return first, err
}

func (n trappedNotes) Ended(ctx context.Context, message uuid.UUID, part int) (ended bool, err error) {
	err = n.trap.around("look", func() error {
		ended, err = n.Notes.Ended(ctx, message, part)
		return err
	})
	return ended, err
}

func (n trappedNotes) State(ctx context.Context, message uuid.UUID) (s fanout.State, err error) {
	err = n.trap.around("state", func() error {
		s, err = n.Notes.State(ctx, message)
		return err
	})
	return s, err
}

func (n trappedNotes) End(ctx context.Context, message uuid.UUID, part int, c *fanout.Counts) error {
	return n.trap.around("note", func() error { return n.Notes.End(ctx, message, part, c) })
}

// trappedAudience is an audience that the process may die at.
type trappedAudience struct {
	fanout.Audience
	trap *trap
}

func (a trappedAudience) Page(ctx context.Context, j *fanout.Job, part int, after string, limit int) (page []fanout.Member, err error) {
	err = a.trap.around("page", func() error {
		page, err = a.Audience.Page(ctx, j, part, after, limit)
		return err
	})
	return page, err
}
