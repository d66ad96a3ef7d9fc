//go:build unix

package chaos

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chaos/proxy"
	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/configs"
)

// slot is a place for a process that is started again and again: a worker with
// proxies of its own in front of the providers, a gateway with one for its callers, a
// process of fan-outs, or the registry.
type slot struct {
	world     *world
	name      string
	launch    func() (*fleet.Process, error)
	apns, fcm *proxy.Proxy // of a worker
	door      *proxy.Proxy // of a gateway: where callers come, whichever process is behind it

	busy sync.Mutex // held while something is done to the process

	mu      sync.Mutex
	running *fleet.Process
	started time.Time               // of running
	ends    map[*fleet.Process]bool // that were told to end
}

func (w *world) newSlot(name string) (*slot, error) {
	s := &slot{world: w, name: name}
	s.launch = s.launchWorker
	at := strings.TrimPrefix(w.fleet.Sim.URL(), "https://")
	var err error
	if s.apns, err = proxy.Listen(at, w.senders.note(name)); err != nil {
		return nil, err
	}
	if s.fcm, err = proxy.Listen(at, w.senders.note(name)); err != nil {
		_ = s.apns.Close() // it has no connections yet
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.slots = append(w.slots, s)
	return s, nil
}

// clientID is how a worker is called in Kafka, so that the broker can say which
// partitions it has.
func clientID(name string) string { return strings.ReplaceAll(name, " ", "-") }

// launchWorker starts a worker that reaches the providers by the slot's proxies. Every
// second one writes packed rows, as in a fleet whose setting is being changed.
func (s *slot) launchWorker() (*fleet.Process, error) {
	return s.world.fleet.StartOtherWorker(func(c *configs.Config) {
		c.Kafka.ClientID = clientID(s.name)
		c.Cassandra.PackedRows = s.world.launched.Add(1)%2 == 0
		c.Apps = slices.Clone(c.Apps)
		for i := range c.Apps {
			app := &c.Apps[i]
			apns, fcm := *app.APNS, *app.FCM
			apns.ProductionURL, apns.SandboxURL = "https://"+s.apns.Addr(), "https://"+s.apns.Addr()
			fcm.URL = "https://" + s.fcm.Addr()
			app.APNS, app.FCM = &apns, &fcm
		}
	}, s.world.env...)
}

// start starts the process and watches it until it ends.
func (s *slot) start() error {
	if s.door != nil {
		s.door.Target("") // the port of the one before may be anybody's
	}
	p, err := s.launch()
	if err != nil {
		return err
	}
	if s.door != nil {
		s.world.watching.Go(func() {
			if at, err := p.AwaitCallers(context.Background()); err == nil { // it ends with the process
				s.door.Target(at)
			}
		})
	}
	s.mu.Lock()
	s.running, s.started = p, time.Now()
	if s.ends == nil {
		s.ends = map[*fleet.Process]bool{}
	}
	s.mu.Unlock()
	s.world.watching.Go(func() {
		<-p.Done()
		s.mu.Lock()
		asked := s.ends[p]
		delete(s.ends, p)
		s.mu.Unlock()
		if asked {
			return
		}
		status, _ := p.Wait(context.Background()) // it has ended
		s.world.noteExit(invariants.Exit{Process: s.name, At: time.Now(), Status: status, Why: p.Tail()})
	})
	return nil
}

func (s *slot) process() *fleet.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// now is the process and when it was started.
func (s *slot) now() (*fleet.Process, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running, s.started
}

// expectEnd says that the process will end for a reason.
func (s *slot) expectEnd() *fleet.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil && s.running.Running() {
		s.ends[s.running] = true
	}
	return s.running
}

// kill ends the process as kill -9 does.
func (s *slot) kill() error { return s.expectEnd().Kill() }

// term asks the process to end, waits for it, and writes down how it did.
func (s *slot) term(ctx context.Context, budget time.Duration) error {
	// Before its first word a process does not listen to signals yet.
	if err := s.process().AwaitLog(ctx, `"msg"`); err != nil {
		return err
	}
	p, told := s.expectEnd(), time.Now()
	status, err := p.Term(ctx)
	if err != nil {
		return err
	}
	e := invariants.Exit{Process: s.name, At: time.Now(), Asked: true, Status: status, Took: time.Since(told), Budget: budget}
	if status != 0 || e.Took > budget {
		e.Why = p.Tail()
	}
	s.world.noteExit(e)
	return nil
}

func (s *slot) pause() error  { return s.process().Signal(syscall.SIGSTOP) }
func (s *slot) resume() error { return s.process().Signal(syscall.SIGCONT) }
