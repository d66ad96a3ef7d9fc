package firsts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/shards"
)

// Options are what a Store works with. All but Tell are required.
type Options struct {
	Fleet string        // whose gateways share it; of two with one Redis each has its own
	Kept  time.Duration // how long each value is kept
	Log   *slog.Logger
	// Tell, if set, hears why Redis is of no use, and nil when it is again. It must be quick.
	Tell func(error)
}

const (
	// patience is how long Find waits, and so how long Redis may take.
	patience = 50 * time.Millisecond
	// longest is how long a command may take before it is given up.
	longest = 250 * time.Millisecond
	// rest is how long Redis is not asked after it has failed, or was late.
	rest = 2 * time.Second
	// most is how many names or values one command has.
	most = 2000
	// room is how many names, and how many values, may wait for Redis.
	room = 100_000
	// leaving is how long Run writes what is left when it is to end.
	leaving = time.Second
)

// Store keeps values under names. It is safe for concurrent use.
type Store struct {
	o       Options
	client  shards.Client
	cluster bool
	prefix  string
	away    atomic.Bool   // Redis is not asked for now
	asks    chan struct{} // capacity 1, never closed: something is looked for
	writes  chan struct{} // capacity 1, never closed: something is to be kept

	mu      sync.Mutex // guards all below
	looks   []*look    // that wait
	names   int        // of these
	values  []value    // that are to be written
	reading error      // why nothing is found; nil = it is
	writing error      // why nothing is written; nil = it is

	counts counts
}

// look is what one caller of Find looks for.
type look struct {
	names []string
	found []string      // by the index of the name; written before done is closed
	done  chan struct{} // closed by who asks Redis, once
}

type value struct{ key, text string }

// New makes a Store; the client stays the caller's. Nothing is found or kept before Run.
func New(client shards.Client, o Options) (*Store, error) {
	if o.Fleet == "" || o.Kept <= 0 || o.Log == nil {
		return nil, errors.New("firsts: the name of the fleet, a time and a log are needed")
	}
	if o.Tell == nil {
		o.Tell = func(error) {}
	}
	_, cluster := client.(*redis.ClusterClient)
	return &Store{o: o, client: client, cluster: cluster, prefix: shards.FirstPrefix(o.Fleet),
		asks: make(chan struct{}, 1), writes: make(chan struct{}, 1)}, nil
}

// Find implements gateway.Firsts.
func (s *Store) Find(ctx context.Context, names []string) []string {
	l := &look{names: names, found: make([]string, len(names)), done: make(chan struct{})}
	if s.away.Load() || !s.queue(l) {
		s.counts.unasked.Add(int64(len(names)))
		return l.found
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-l.done:
		return l.found
	case <-timer.C:
	case <-ctx.Done():
	}
	s.counts.late.Add(int64(len(names)))
	return make([]string, len(names)) // the others may still be written
}

// queue lets a look wait for its turn; false = there is no room.
func (s *Store) queue(l *look) bool {
	s.mu.Lock()
	fits := s.names+len(l.names) <= room
	if fits {
		s.looks, s.names = append(s.looks, l), s.names+len(l.names)
	}
	s.mu.Unlock()
	if fits {
		wake(s.asks)
	}
	return fits
}

// Keep implements gateway.Firsts.
func (s *Store) Keep(name, text string) {
	s.mu.Lock()
	fits := !s.away.Load() && len(s.values) < room
	if fits {
		s.values = append(s.values, value{s.prefix + name, text})
	}
	s.mu.Unlock()
	if !fits {
		s.counts.lost.Add(1)
		return
	}
	wake(s.writes)
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run asks and writes until ctx ends, and then writes what is left. Many that wait go with
// one command, so that a command costs each of them little.
func (s *Store) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { s.read(ctx) })
	loops.Go(func() { s.write(ctx) })
	loops.Wait()
}

func (s *Store) read(ctx context.Context) {
	for {
		select {
		case <-s.asks:
		case <-ctx.Done():
			return
		}
		for looks := s.nextLooks(); len(looks) > 0; looks = s.nextLooks() {
			began := time.Now()
			err := s.find(ctx, looks)
			if took := time.Since(began); err == nil && took > patience {
				err = fmt.Errorf("it took %v to answer", took.Round(time.Millisecond))
			}
			if s.tell(&s.reading, err); err != nil {
				s.pause(ctx)
			}
		}
	}
}

// nextLooks takes looks that wait: as many as one command may have, but one at least.
func (s *Store) nextLooks() []*look {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, names := 0, 0
	for n < len(s.looks) && (n == 0 || names+len(s.looks[n].names) <= most) {
		names += len(s.looks[n].names)
		n++
	}
	taken := s.looks[:n:n]
	if s.looks, s.names = s.looks[n:], s.names-names; len(s.looks) == 0 {
		s.looks = nil
	}
	return taken
}

// find asks Redis what looks want, and lets their callers go.
func (s *Store) find(ctx context.Context, looks []*look) error {
	var keys []string
	for _, l := range looks {
		for _, name := range l.names {
			keys = append(keys, s.prefix+name)
		}
		defer close(l.done)
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	values, err := s.get(ctx, keys)
	if err != nil {
		s.counts.unasked.Add(int64(len(keys)))
		return fmt.Errorf("looking for repeats: %w", err)
	}
	i := 0
	for _, l := range looks {
		for n := range l.found {
			if text, ok := values[i].(string); ok {
				l.found[n] = text
				s.counts.found.Add(1)
			} else {
				s.counts.none.Add(1)
			}
			i++
		}
	}
	return nil
}

// get reads keys: with one command, or of a cluster with one for each, as no two of them
// need be in one place. What is not there is no string.
func (s *Store) get(ctx context.Context, keys []string) ([]any, error) {
	if !s.cluster {
		values, err := s.client.MGet(ctx, keys...).Result()
		if err == nil && len(values) != len(keys) {
			err = fmt.Errorf("%d answers to %d keys", len(values), len(keys))
		}
		return values, err
	}
	pipe := s.client.Pipeline()
	cmds := make([]*redis.StringCmd, len(keys))
	for i, key := range keys {
		cmds[i] = pipe.Get(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	values := make([]any, len(keys))
	for i, cmd := range cmds {
		switch text, err := cmd.Result(); {
		case err == nil:
			values[i] = text
		case !errors.Is(err, redis.Nil) && !shards.Answered(err):
			return nil, err
		}
	}
	return values, nil
}

func (s *Store) write(ctx context.Context) {
	writing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(leaving, cancel) })()
	for ctx.Err() == nil {
		select {
		case <-s.writes:
		case <-ctx.Done():
		}
		s.writeAll(writing)
	}
	s.writeAll(writing)
}

func (s *Store) writeAll(ctx context.Context) {
	for values := s.nextValues(); len(values) > 0; values = s.nextValues() {
		s.tell(&s.writing, s.set(ctx, values))
	}
}

func (s *Store) nextValues() []value {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.values), most)
	taken := s.values[:n:n]
	if s.values = s.values[n:]; len(s.values) == 0 {
		s.values = nil
	}
	return taken
}

// set writes values whose keys have none.
func (s *Store) set(ctx context.Context, values []value) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	pipe := s.client.Pipeline()
	cmds := make([]*redis.BoolCmd, len(values))
	for i, v := range values {
		cmds[i] = pipe.SetNX(ctx, v.key, v.text, s.o.Kept)
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	var failed error
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			failed = fmt.Errorf("keeping what was accepted: %w", err)
			s.counts.lost.Add(1)
		} else {
			s.counts.kept.Add(1)
		}
	}
	return failed
}

// pause does not ask Redis until it answers in time, or ctx ends.
func (s *Store) pause(ctx context.Context) {
	s.away.Store(true)
	for _, l := range s.dropLooks() {
		s.counts.unasked.Add(int64(len(l.names)))
		close(l.done)
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if s.answers(ctx) {
			s.away.Store(false)
			s.tell(&s.reading, nil)
			return
		}
		timer.Reset(rest)
	}
}

// answers reports whether Redis answers in time to what Find would ask.
func (s *Store) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.get(ctx, []string{s.prefix})
	return err == nil
}

func (s *Store) dropLooks() []*look {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.looks
	s.looks, s.names = nil, 0
	return dropped
}

// tell says why Redis is of no use for one of the two, or that it is again.
func (s *Store) tell(which *error, err error) {
	s.mu.Lock() // until it is told: what is told last is so
	defer s.mu.Unlock()
	before := *which
	*which = err
	if (before == nil) == (err == nil) {
		return
	}
	if err != nil {
		s.o.Log.Warn("repeats are not known here for now: they are written again, and workers know them", "error", err)
	} else {
		s.o.Log.Info("repeats are known again")
	}
	s.o.Tell(errors.Join(s.reading, s.writing))
}
