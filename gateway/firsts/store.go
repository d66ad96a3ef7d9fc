package firsts

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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
	// readEvery and writeEvery are the least times between two commands: at thousands of
	// messages a second many share one. Nobody waits for a write.
	readEvery  = time.Millisecond
	writeEvery = 10 * time.Millisecond
	// rest is how long Redis is not asked after it has failed, or was late.
	rest = 2 * time.Second
	// most is how many names or values one command has.
	most = 1000
	// room is how many names, and how many values, may wait for Redis; the writer may have as
	// many values again.
	room = 25_000
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

	spare  sync.Pool  // of *look that nobody uses
	mu     sync.Mutex // guards the next three
	looks  []*look    // that wait
	names  int        // of these
	values values     // that are to be written

	telling sync.Mutex // guards the next two, and is held until it is told: what is told last is so
	reading error      // why nothing is found; nil = it is
	writing error      // why nothing is written; nil = it is

	counts counts
}

// look is what one caller of Find looks for.
type look struct {
	names [][16]byte
	found []string      // by the index of the name; written before done gets one
	done  chan struct{} // capacity 1, never closed
	timer *time.Timer
}

// New makes a Store; the client stays the caller's. Nothing is found or kept before Run.
func New(client shards.Client, o Options) (*Store, error) {
	if o.Fleet == "" || o.Kept <= 0 || o.Log == nil {
		return nil, errors.New("firsts: the name of the fleet, a time and a log are needed")
	}
	if o.Tell == nil {
		o.Tell = func(error) {}
	}
	return &Store{o: o, client: client, cluster: shards.IsCluster(client), prefix: shards.FirstPrefix(o.Fleet),
		spare: sync.Pool{New: func() any { return newLook() }}, asks: make(chan struct{}, 1), writes: make(chan struct{}, 1)}, nil
}

func newLook() *look {
	l := &look{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// Find implements gateway.Firsts.
func (s *Store) Find(ctx context.Context, names [][16]byte, found []string) []string {
	if s.away.Load() {
		s.counts.unasked.Add(int64(len(names)))
		return nothing(found, len(names))
	}
	l := s.spare.Get().(*look)
	l.names = append(l.names[:0], names...)
	l.found = nothing(l.found[:0], len(names))
	if !s.queue(l) {
		s.spare.Put(l)
		s.counts.unasked.Add(int64(len(names)))
		return nothing(found, len(names))
	}
	l.timer.Reset(patience)
	select {
	case <-l.done:
		l.timer.Stop()
		found = append(found, l.found...)
		s.spare.Put(l)
		return found
	case <-l.timer.C:
	case <-ctx.Done():
		l.timer.Stop()
	}
	s.counts.late.Add(int64(len(names))) // it is not used again: its answer may still come
	return nothing(found, len(names))
}

// nothing appends so many that are not known.
func nothing(found []string, n int) []string {
	for range n {
		found = append(found, "")
	}
	return found
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
func (s *Store) Keep(name [16]byte, text []byte) {
	s.mu.Lock()
	v := &s.values
	fits := !s.away.Load() && len(v.names) < room
	if fits {
		v.names, v.text = append(v.names, name), append(v.text, text...)
		v.ends = append(v.ends, len(v.text))
	}
	s.mu.Unlock()
	if !fits {
		s.counts.lost.Add(1)
		return
	}
	wake(s.writes)
}

// spaced waits for as long as is left of every since last, or until ctx ends.
func spaced(ctx context.Context, last time.Time, every time.Duration) {
	left := every - time.Since(last)
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
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

// tell says why Redis is of no use for one of the two, or that it is again.
func (s *Store) tell(which *error, err error) {
	s.telling.Lock()
	defer s.telling.Unlock()
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
