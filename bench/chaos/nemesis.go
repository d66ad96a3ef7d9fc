//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chaos/proxy"
	"github.com/pushfleet/pushfleet/providers/sim"
)

// nemesis carries a plan out, and writes down what it did.
type nemesis struct {
	world    *world
	arrivals *arrivals
	status   *statusReader
	callers  *callers // nil = there are none
	say      func(format string, args ...any)

	judged    func(context.Context) error // waits until all is read that commits have passed
	committed func() int64                // records so far, by the newest sample
	produced  func() int64                // bytes of records so far
	loaded    chan struct{}               // closed when all records are produced

	doing   sync.WaitGroup
	keys    sync.Mutex // held while an exchange of keys is under way
	mu      sync.Mutex
	events  []invariants.Event     // guarded by mu
	shuts   []invariants.Span      // guarded by mu; when the fleet could not reach the status store
	unread  []death                // guarded by mu; whose rows could not be read yet
	gone    bool                   // guarded by mu; the status store is away for everybody
	past    int64                  // guarded by world.serving of Cassandra; committed when its last outage ended
	prints  []invariants.Footprint // guarded by mu; of workers while a store was away
	joined  []*slot                // guarded by mu; members that may leave, oldest first
	members int                    // guarded by mu; that ever joined
	err     error                  // guarded by mu; what could not be done
}

// run starts every action at its time, and returns when all is undone.
func (n *nemesis) run(ctx context.Context, began time.Time, plan []Action) error {
	for _, a := range plan {
		select {
		case <-time.After(time.Until(began.Add(a.At))):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		n.say("%s", a)
		n.doing.Go(func() {
			if err := n.do(ctx, a); err != nil {
				n.mu.Lock()
				n.err = errors.Join(n.err, fmt.Errorf("%s of %s: %w", a.Fault, a.Target, err))
				n.mu.Unlock()
			}
		})
	}
	n.doing.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.unread) > 0 {
		n.err = errors.Join(n.err, fmt.Errorf("what %d kills have exposed was never read", len(n.unread)))
	}
	return n.err
}

func (n *nemesis) do(ctx context.Context, a Action) error {
	switch {
	case a.Fault == Rewind:
		return n.rewind(ctx, a)
	case a.Fault == Refused:
		return n.refuse(ctx, a)
	case a.Fault == Rotate:
		return n.rotate(ctx, a)
	case a.Fault == Forbid:
		return n.forbid(ctx, a)
	case a.Fault == KillAll:
		return n.killAll(ctx)
	case a.Fault == Join:
		return n.join()
	case a.Fault == Leave:
		return n.leave(ctx)
	case a.Fault == Visit:
		return n.visit(ctx, a)
	case a.Fault == Grow:
		return n.grow(ctx)
	case ofGateways(a.Target):
		return n.gateway(ctx, a)
	case a.Target == Kafka || a.Target == Redis || a.Target == Cassandra:
		return n.server(ctx, a)
	case a.Fault == Quota:
		return n.quota(ctx, a)
	case a.Fault == Comeback:
		return n.comeback(ctx, a)
	case a.Target == APNS || a.Target == FCM:
		return n.provider(ctx, a)
	case strings.HasPrefix(a.Target, "providers of "):
		return n.paths(ctx, a, strings.TrimPrefix(a.Target, "providers of "))
	}
	return n.worker(ctx, a)
}

// note adds an event with its end.
func (n *nemesis) note(e invariants.Event) {
	if e.End.IsZero() {
		e.End = time.Now()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, e)
}

// hold waits for a fault's length.
func hold(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// worker does something to the process of a slot.
func (n *nemesis) worker(ctx context.Context, a Action) error {
	s, err := n.world.find(a.Target)
	if err != nil {
		return err
	}
	s.busy.Lock()
	defer s.busy.Unlock()
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, Of: a.Target, Start: time.Now()}
	switch a.Fault {
	case Kill:
		n.awaitLoad(ctx, s)
		return errors.Join(n.kill(ctx, Kill, s), s.start())
	case Stop:
		// What a store that is away keeps from ending is repeated by the heir.
		if n.storeAway(e.Start) {
			e.Repeats = n.world.scenario.bound()
		}
		e.Orderly = true
		err := s.term(ctx, n.world.termBudget())
		n.note(e)
		return errors.Join(err, s.start())
	case Pause:
		// What was in flight is overdue when it wakes up, and what it had to write
		// is written late.
		e.Repeats, e.Stalls, e.Mute = n.world.scenario.bound(), true, true
		if err := s.pause(); err != nil {
			return err
		}
		hold(ctx, a.For)
		err := s.resume()
		n.note(e)
		return err
	}
	return errors.New("nobody knows how")
}

// A worker that is told to end does so within its drain, and what its process
// takes to be gone: on a busy machine, that may be some seconds.
const (
	termSlack     = time.Second
	busyTermSlack = 10 * time.Second
)

func (w *world) termBudget() time.Duration {
	if w.busy {
		return drain + busyTermSlack
	}
	return drain + termSlack
}

// lookBack is how far back a push can lie that is not durable yet: a send's and
// a status write's time, and longer while a store was away.
func (n *nemesis) lookBack(at time.Time) time.Duration {
	back := 30 * time.Second
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.events {
		if e.Stalls && (e.End.IsZero() || at.Sub(e.End) < back) {
			back = max(back, at.Sub(e.Start)+30*time.Second)
		}
	}
	return back
}

// storeAway reports whether a store is away, or was until just before.
func (n *nemesis) storeAway(at time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.events, func(e invariants.Event) bool {
		return e.Stalls && (e.End.IsZero() || at.Sub(e.End) < drain)
	})
}

// killAll kills every worker at once and starts them together.
func (n *nemesis) killAll(ctx context.Context) error {
	slots := n.world.workers()
	for _, s := range slots {
		s.busy.Lock()
		defer s.busy.Unlock()
	}
	errs := []error{n.kill(ctx, KillAll, slots...)}
	for _, s := range slots {
		errs = append(errs, s.start())
	}
	return errors.Join(errs...)
}

func (n *nemesis) join() error {
	n.mu.Lock()
	n.members++
	name := fmt.Sprintf("guest %d", n.members)
	n.mu.Unlock()
	s, err := n.world.newSlot(name)
	if err != nil {
		return err
	}
	e := invariants.Event{Kind: string(Join), Target: name, Start: time.Now()}
	if err := s.start(); err != nil {
		return err
	}
	n.note(e)
	n.mu.Lock()
	n.joined = append(n.joined, s)
	n.mu.Unlock()
	return nil
}

func (n *nemesis) leave(ctx context.Context) error {
	n.mu.Lock()
	if len(n.joined) == 0 {
		n.mu.Unlock()
		return errors.New("nobody has joined")
	}
	s := n.joined[0]
	n.joined = n.joined[1:]
	n.mu.Unlock()
	s.busy.Lock()
	defer s.busy.Unlock()
	e := invariants.Event{Kind: string(Leave), Target: s.name, Of: s.name, Orderly: true, Start: time.Now()}
	err := s.term(ctx, n.world.termBudget())
	n.note(e)
	return err
}

// network is what a fault does to a proxy; ok is false when it is none of the
// network's.
func network(ctx context.Context, a Action, proxies ...*proxy.Proxy) (ok bool) {
	faults := map[Fault]proxy.Fault{Slow: {Latency: 100 * time.Millisecond}, BlackHole: proxy.BlackHole(),
		HalfOpen: proxy.HalfOpen(), Refuse: {Refuse: true}, Down: {Refuse: true}}
	faults[Lag] = proxy.Fault{Latency: a.Delay}
	f, lasts := faults[a.Fault]
	for _, p := range proxies {
		switch {
		case lasts:
			p.Set(f)
			if a.Fault == Down {
				p.Reset()
			}
		case a.Fault == Reset:
			p.Reset()
		case a.Fault == Cut:
			cut(ctx, p)
		default:
			return false
		}
	}
	if lasts {
		hold(ctx, a.For)
		for _, p := range proxies {
			p.Set(proxy.Fault{})
		}
	}
	return true
}

// cutPatience is how long a cut waits for the bytes before it. What is cut later
// than its event says would have no fault that explains it.
const cutPatience = 2 * time.Second

// cut ends connections in the middle of what is sent: after a frame or two, and
// a part.
func cut(ctx context.Context, p *proxy.Proxy) {
	ctx, cancel := context.WithTimeout(ctx, cutPatience)
	defer cancel()
	p.Cut(ctx, 777)
}

// paths does something to the connections of a worker to the providers.
func (n *nemesis) paths(ctx context.Context, a Action, name string) error {
	s, err := n.world.find(name)
	if err != nil {
		return err
	}
	s.busy.Lock()
	defer s.busy.Unlock()
	// Whatever was in flight may have arrived, and nobody will know.
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, Of: name, Start: time.Now(), Repeats: n.world.scenario.bound(), Stalls: a.For > 0, Holds: a.Fault == BlackHole}
	if !network(ctx, a, s.apns, s.fcm) {
		return errors.New("nobody knows how")
	}
	n.note(e)
	return nil
}

// provider does something to one of the providers, or to the connections of
// everybody to it.
func (n *nemesis) provider(ctx context.Context, a Action) error {
	n.world.serving[a.Target].Lock()
	defer n.world.serving[a.Target].Unlock()
	who, _ := sim.ParseProvider(a.Target)
	server, usual := n.world.fleet.Sim, n.world.fleet.Sim.Faults(who)
	// Refusals of a part let partitions move on.
	e := invariants.Event{Kind: string(a.Fault), Target: a.Target, Start: time.Now(), Stalls: a.For > 0 && a.Fault != Errors}
	if a.For > 0 && n.world.scenario.alone {
		e.Unharmed = map[string]string{APNS: FCM, FCM: APNS}[a.Target]
	}
	faults := usual
	switch a.Fault {
	case Storm:
		faults.TooMany = 1
		switch stormForms[a.Form] {
		case "seconds":
			faults.RetryAfter = a.For
		case "date":
			faults.RetryAfter, faults.RetryAfterDate = a.For, true
		}
		e.Kind += ", Retry-After: " + stormForms[a.Form]
	case Errors:
		faults.Unavailable = []float64{0.3, 0.6}[a.Form]
	case Down:
		e.Repeats = n.world.scenario.bound() * len(n.world.workers())
		var proxies []*proxy.Proxy
		for _, s := range n.world.workers() {
			proxies = append(proxies, map[string]*proxy.Proxy{APNS: s.apns, FCM: s.fcm}[a.Target])
		}
		network(ctx, a, proxies...)
		n.note(e)
		return nil
	case GoAway, Abandon:
		// Without the answers, what was in flight may have been accepted.
		do := map[Fault]string{GoAway: "drain", Abandon: "abandon"}[a.Fault]
		if a.Fault == Abandon {
			e.Repeats = n.world.scenario.bound() * len(n.world.workers())
		}
		err := server.Command(sim.Command{Do: do, Provider: a.Target})
		n.note(e)
		return err
	default:
		return errors.New("nobody knows how")
	}
	if err := server.SetFaults(who, faults); err != nil {
		return err
	}
	hold(ctx, a.For)
	err := server.SetFaults(who, usual)
	n.note(e)
	if faults.RetryAfter > 0 {
		n.bans(&e, faults.RetryAfter)
	}
	return err
}

// banDrain is how long what was in flight at a provider's word may still arrive.
const banDrain = 2 * time.Second

// bans notes, for each worker, the time that it was told not to call: from the
// first 429 that it got.
func (n *nemesis) bans(storm *invariants.Event, after time.Duration) {
	for name, at := range n.arrivals.first(storm.Target, storm.Start, tooMany[storm.Target]) {
		n.note(invariants.Event{Kind: "ban", Target: name, Start: at, End: at.Add(after.Truncate(time.Second)),
			Ban: &invariants.Ban{Provider: storm.Target, Drain: banDrain}})
	}
}
