package inbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// News is where a Watcher looks: Store or Memory.
type News interface {
	News(ctx context.Context) ([]Line, error)
}

// WatcherOptions are what a Watcher is made of.
type WatcherOptions struct {
	News    News
	Every   time.Duration // between two looks: 1 s
	Timeout time.Duration // of one: 5 s
	Most    int           // waits at once: 10,000
	Log     *slog.Logger  // required
}

// Watcher tells those who wait for something new in an inbox. One look per interval serves
// all of them, and there is none while nobody waits. It is safe for concurrent use.
//
// It is best effort: news may be lost, so that who waits looks for himself in the end.
type Watcher struct {
	o    WatcherOptions
	wake chan struct{} // buffered, 1: somebody began to wait; never closed

	mu      sync.Mutex
	closed  bool                      // guarded by mu
	waiting map[uint64]map[*Wait]bool // guarded by mu; by key
	count   int                       // guarded by mu; waits

	told map[Line]bool // of Run's goroutine: the lines of the last look
}

// NewWatcher makes a Watcher, which looks once Run is called.
func NewWatcher(o WatcherOptions) *Watcher {
	if o.Every == 0 {
		o.Every = time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.Most == 0 {
		o.Most = 10_000
	}
	return &Watcher{o: o, wake: make(chan struct{}, 1), waiting: make(map[uint64]map[*Wait]bool)}
}

// mostOfOne is how many may wait for one inbox: more than a user has devices of an app. So
// nobody takes the places of all others.
const mostOfOne = 32

// ErrTooMany says that so many wait, in all or for one inbox, that no more may.
var ErrTooMany = errors.New("inbox: too many wait")

// Wait is one who waits.
type Wait struct {
	// C gets a value when there may be something new, or when the Watcher ends.
	C    <-chan struct{}
	c    chan struct{} // buffered, 1; never closed
	w    *Watcher
	keys []uint64
}

// Wait waits for news of an inbox, or of any of these keys, which others share, from now
// on. Close ends it. Begin it before the inbox is read, so that nothing comes in between.
func (w *Watcher) Wait(own uint64, shared ...uint64) (*Wait, error) {
	c, keys := make(chan struct{}, 1), append([]uint64{own}, shared...)
	one := &Wait{C: c, c: c, w: w, keys: keys}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		one.tell()
		one.keys = nil
		return one, nil
	}
	if w.count >= w.o.Most || len(w.waiting[own]) >= mostOfOne {
		return nil, ErrTooMany
	}
	w.count++
	for _, k := range keys {
		if w.waiting[k] == nil {
			w.waiting[k] = make(map[*Wait]bool, 1)
		}
		w.waiting[k][one] = true
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return one, nil
}

func (one *Wait) tell() {
	select {
	case one.c <- struct{}{}:
	default: // it has been told
	}
}

// Next waits until there may be something new: true. It is false when over gets a value,
// ctx ends, or the Watcher is closed.
func (one *Wait) Next(ctx context.Context, over <-chan time.Time) bool {
	select {
	case <-one.C:
		return !one.w.isClosed()
	case <-over:
	case <-ctx.Done():
	}
	return false
}

// Close ends the wait. It may be called twice.
func (one *Wait) Close() {
	w := one.w
	w.mu.Lock()
	defer w.mu.Unlock()
	there := false
	for _, k := range one.keys {
		if all := w.waiting[k]; all[one] {
			there = true
			if delete(all, one); len(all) == 0 {
				delete(w.waiting, k)
			}
		}
	}
	if there {
		w.count--
	}
}

func (w *Watcher) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// Waiting is how many wait.
func (w *Watcher) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Close tells all who wait, and all who come later: nobody waits any more.
func (w *Watcher) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, all := range w.waiting {
		for one := range all {
			one.tell()
		}
	}
}

// Run looks until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	failing := false
	for {
		if w.Waiting() == 0 {
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
		}
		err := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if (err != nil) != failing {
			if failing = err != nil; failing {
				w.o.Log.Warn("news of inboxes cannot be read: who waits hears of them at the end of his wait", "error", err)
			} else {
				w.o.Log.Info("news of inboxes are read again")
			}
		}
		select {
		case <-time.After(w.o.Every):
		case <-ctx.Done():
			return
		}
	}
}

// look looks once, and tells those whom it concerns of each line once.
func (w *Watcher) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	lines, err := w.o.News.News(ctx)
	if err != nil {
		return err
	}
	now := make(map[Line]bool, len(lines))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range lines {
		if now[l] = true; w.told[l] {
			continue
		}
		for one := range w.waiting[l.Key] {
			one.tell()
		}
	}
	w.told = now
	return nil
}
