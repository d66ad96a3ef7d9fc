package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/shards"
)

// Options are what Quotas work with. Fleet, Member, Gateways and Log are required.
type Options struct {
	Fleet  string // whose gateways share the limits; of two with one Redis each has its own
	Member string // this gateway, in this life: no other one is ever called so. Without blanks
	// Default is of senders that Senders does not name. Those that it names have their own
	// limits alone.
	Default Limits
	Senders map[string]Limits
	// Gateways is how many there are, for as long as Redis has not told. At least 1.
	Gateways int
	Log      *slog.Logger
	// Tell, if set, hears why Redis does not answer, and nil when it does again. It must be
	// quick.
	Tell func(error)
}

const (
	// patience is how long an answer is waited for.
	patience = time.Second
	// tick is how often it is looked who is to ask.
	tick = 20 * time.Millisecond
)

// Quotas are the limits of all senders, as one gateway has them. It is safe for concurrent
// use.
type Quotas struct {
	o     Options
	store *store
	born  time.Time
	count atomic.Int64  // gateways
	known atomic.Bool   // Redis has answered, or is away
	early atomic.Int64  // requests that wait until that is known
	wake  chan struct{} // capacity 1, never closed: somebody asks out of turn

	senders sync.Map   // names to *Sender; nil = without limits. They are as many as there ever were in the file of keys
	mu      sync.Mutex // guards limited, and that a sender is made once
	limited []*Sender  // those with limits, as they came

	asking sync.Mutex // guards the next two
	busy   []*Sender  // those that ask now and then
	away   bool       // Redis did not answer for one of them, and the log says so
}

// New makes the limits of senders. The client stays the caller's. Nothing is admitted of what
// is limited before Run.
func New(client shards.Client, o Options) (*Quotas, error) {
	if o.Fleet == "" || o.Member == "" || o.Gateways < 1 || o.Log == nil {
		return nil, errors.New("quota: the names of fleet and gateway, a number of gateways and a log are needed")
	}
	if o.Tell == nil {
		o.Tell = func(error) {}
	}
	if err := o.Default.check(); err != nil {
		return nil, fmt.Errorf("quota: limits of all senders: %w", err)
	}
	for name, l := range o.Senders {
		if err := l.check(); err != nil {
			return nil, fmt.Errorf("quota: limits of sender %q: %w", name, err)
		}
	}
	q := &Quotas{o: o, store: newStore(client, o.Member), born: time.Now(), wake: make(chan struct{}, 1)}
	q.count.Store(int64(o.Gateways))
	return q, nil
}

// now is the time since it was made, in ns, by the monotonic clock.
func (q *Quotas) now() int64 { return int64(time.Since(q.born)) }

// Of is a sender; nil = it has no limits. Names come from the file of keys, and not from
// requests: what is known of a sender is kept.
func (q *Quotas) Of(name string) *Sender {
	if s, known := q.senders.Load(name); known {
		return s.(*Sender)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if s, known := q.senders.Load(name); known {
		return s.(*Sender)
	}
	s := q.newSender(name)
	if s != nil {
		q.limited = append(q.limited, s)
	}
	q.senders.Store(name, s)
	return s
}

func (q *Quotas) newSender(name string) *Sender {
	limits, own := q.o.Senders[name]
	if !own {
		limits = q.o.Default
	}
	policies := limits.Policies()
	if len(policies) == 0 {
		return nil
	}
	s := &Sender{name: name, quotas: q, asked: -int64(time.Hour), heard: -int64(time.Hour)}
	for _, p := range policies {
		s.windows = append(s.windows, window{Policy: p, length: int64(p.Window)})
		for parity := range int64(2) {
			s.keys = append(s.keys, shards.QuotaKey(q.o.Fleet, name, int64(p.Window/time.Second), parity))
		}
	}
	return s
}

// comesFirst reports whether a request may wait until it is known whether Redis is there. If so
// it is counted in early, until the caller takes it out.
func (q *Quotas) comesFirst() bool {
	if q.known.Load() {
		return false
	}
	if q.early.Add(1) <= firsts {
		return true
	}
	q.early.Add(-1)
	return false
}

// rouse lets a sender ask at once.
func (q *Quotas) rouse(s *Sender) {
	s.mu.Lock()
	joins := !s.busy
	if joins {
		s.busy, s.demand.last = true, q.now()
	}
	s.roused = true
	s.mu.Unlock()
	if joins {
		q.asking.Lock()
		q.busy = append(q.busy, s)
		q.asking.Unlock()
	}
	select {
	case q.wake <- struct{}{}:
	default: // it is awake
	}
}

// Run leases until ctx ends, and then gives back what is left.
func (q *Quotas) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { q.beThere(ctx) })
	running.Go(func() { q.lease(ctx) })
	running.Wait()
}

func (q *Quotas) lease(ctx context.Context) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			q.leave(context.WithoutCancel(ctx))
			return
		case <-q.wake:
		case <-timer.C:
		}
		due, idle := q.due(q.now())
		if len(due) > 0 {
			q.exchange(ctx, due, false)
		}
		if !idle {
			timer.Reset(tick)
		}
		if len(due) > 0 {
			pause(ctx, apart)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// due are those who ask now; idle = nobody will but who is roused.
func (q *Quotas) due(now int64) (due []*Sender, idle bool) {
	q.asking.Lock()
	defer q.asking.Unlock()
	kept := q.busy[:0]
	for _, s := range q.busy {
		asks, ends := s.due(now)
		if asks {
			due = append(due, s)
		}
		if !ends {
			kept = append(kept, s)
		}
	}
	clear(q.busy[len(kept):])
	q.busy = kept
	return due, len(kept) == 0
}

// exchange asks for some senders, in one round trip.
func (q *Quotas) exchange(ctx context.Context, senders []*Sender, leaves bool) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asks, calls := make([]ask, len(senders)), make([]shards.Call, len(senders))
	for i, s := range senders {
		asks[i] = s.ask(q.now(), leaves)
		calls[i] = q.store.call(within, s.keys, &asks[i], q.gateways())
	}
	err := q.store.run(within, calls)
	if leaves || ctx.Err() != nil {
		return
	}
	now := q.now()
	answered := false
	var failed error
	for i, s := range senders {
		var l leases
		values, fault := calls[i].Cmd.Int64Slice()
		if fault == nil {
			l, fault = readLeases(values, &asks[i], len(s.windows))
		}
		if fault != nil {
			if s.unanswered(now, &asks[i]) {
				failed = cmp.Or(err, fmt.Errorf("leasing limits of senders: %w", fault))
			}
			continue
		}
		s.settle(now, &asks[i], &l)
		answered = true
	}
	if answered || failed != nil {
		q.told(failed)
	}
}

// told notes in the log that Redis is away, or back.
func (q *Quotas) told(err error) {
	q.asking.Lock()
	defer q.asking.Unlock()
	switch {
	case err != nil && !q.away:
		q.o.Log.Warn("limits of senders cannot be shared: this gateway admits its part of them", "gateways", q.gateways(), "error", err)
		q.o.Tell(err)
		q.away = true
	case err == nil && q.away && !slices.ContainsFunc(q.busy, (*Sender).isAway): // of a cluster a part may be
		q.o.Log.Info("limits of senders are shared again")
		q.o.Tell(nil)
		q.away = false
	}
}

// leave gives back what is held.
func (q *Quotas) leave(ctx context.Context) {
	q.asking.Lock()
	busy := q.busy
	q.busy = nil
	q.asking.Unlock()
	if len(busy) > 0 {
		q.exchange(ctx, busy, true)
	}
}
