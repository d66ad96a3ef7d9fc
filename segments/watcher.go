package segments

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// WatcherOptions configure a Watcher.
type WatcherOptions struct {
	Interval time.Duration // between two polls, give or take a tenth; 0 = 30 s
	Timeout  time.Duration // of a poll with its download; 0 = 5 minutes
	MaxBytes int64         // as in Read
	// Check, if set, refuses a whole set that its user cannot use, for example
	// because a segment that a rule names is missing. It is asked again at each poll:
	// the rules may change. It must not call Hold.
	Check   func(*Set) error
	Metrics *Metrics     // nil = no figures
	Log     *slog.Logger // nil = no log
	// The clock; nil = that of package time.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// Watcher keeps the newest set of a source. A file that is refused or cannot be
// read changes nothing: the set before stays in use. Safe for concurrent
// use.
type Watcher struct {
	source Source
	opts   WatcherOptions
	set    atomic.Pointer[Set]

	polling sync.Mutex // held during a poll, and taken before mu
	tag     string     // guarded by polling; of what was last loaded or refused
	refused error      // guarded by polling; why what has this tag was refused
	unfit   *Set       // guarded by polling; what has this tag, if Check refused it

	// exchange guards that set is what Check was asked about: it is held from Check
	// until the set is in use, and by Hold. Taken after polling, never with mu.
	exchange sync.Mutex

	mu     sync.Mutex
	status Status // guarded by mu
}

// Status is what became of the latest polls.
type Status struct {
	Source   string
	Version  uint64    // of the set in use; 0 = none yet
	Checksum string    // of the set in use, in hex
	Loaded   time.Time // when it was loaded
	Current  time.Time // when it was last known to be the newest one
	Polled   time.Time // when the source was last asked
	// Err is why the latest poll brought nothing; nil if it loaded a set or found
	// the one in use unchanged.
	Err error
}

// NewWatcher makes a Watcher without a set: Poll or Run loads the first one.
func NewWatcher(source Source, o WatcherOptions) *Watcher {
	if o.Interval == 0 {
		o.Interval = 30 * time.Second
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	return &Watcher{source: source, opts: o, status: Status{Source: source.String()}}
}

// Set is the set in use; nil until the first one is loaded. It neither waits
// nor allocates.
func (w *Watcher) Set() *Set { return w.set.Load() }

// Hold calls do with the set in use, nil before the first one, and returns its error. No
// other set is checked or put in use until do returns: what Check reads can be
// changed there, if it goes with this set. do must not call Poll or Hold.
func (w *Watcher) Hold(do func(*Set) error) error {
	w.exchange.Lock()
	defer w.exchange.Unlock()
	return do(w.Set())
}

// Status says what became of the latest polls.
func (w *Watcher) Status() Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// Run polls the source now and then until ctx ends, and logs what changes. It
// returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	last := ""
	for {
		before := w.Set()
		err := w.Poll(ctx)
		switch s := w.Set(); {
		case ctx.Err() != nil:
			return nil
		case err != nil && err.Error() != last:
			w.opts.Log.Warn("segments cannot be loaded, those in use stay", "source", w.source.String(), "version_in_use", w.Status().Version, "error", err)
		case s != before:
			w.opts.Log.Info("segments loaded", "source", w.source.String(), "version", s.Version(), "checksum", s.checksum.String(), "bytes", s.Bytes())
		}
		last = ""
		if err != nil {
			last = err.Error()
		}
		// Workers that were started together do not ask together for ever.
		pause := w.opts.Interval - w.opts.Interval/10 + rand.N(w.opts.Interval/5+1)
		select {
		case <-w.opts.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// Poll asks the source once, and puts a newer version in use. The error is a
// RefusedError if the newest file must not be used. The same contents
// are not read again after that, but the error stays until there are others, or
// until Check accepts it.
func (w *Watcher) Poll(ctx context.Context) error {
	w.polling.Lock()
	defer w.polling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, w.opts.Timeout)
	defer cancel()
	set, err := w.load(ctx)
	w.note(set, err)
	if errors.Is(err, ErrUnchanged) {
		return nil
	}
	return err
}

// load loads a newer set and puts it in use. The error is ErrUnchanged if the one in
// use is the newest.
func (w *Watcher) load(ctx context.Context) (*Set, error) {
	c, err := w.source.Open(ctx, w.tag)
	if err != nil {
		switch {
		case !errors.Is(err, ErrUnchanged) || w.refused == nil:
			return nil, err
		case w.unfit == nil || w.use(w.unfit) != nil:
			return nil, w.refused
		}
		set := w.unfit
		w.refused, w.unfit = nil, nil
		return set, nil
	}
	if w.unfit != nil { // a third version would take more memory
		w.unfit, w.tag = nil, ""
	}
	set, err := read(c.Body, w.opts.MaxBytes, w.newer)
	if closed := c.Body.Close(); err == nil && closed != nil {
		err = fmt.Errorf("reading segments: %w", closed)
	}
	if err == nil {
		if unfit := w.use(set); unfit != nil {
			w.unfit = set
			err = refusef(RefusedUse, "version %d: %w", set.Version(), unfit)
		}
	}
	refused, is := errors.AsType[*RefusedError](err)
	switch {
	case is:
		w.opts.Metrics.reasons.WithLabelValues(string(refused.Reason)).Inc()
		err = fmt.Errorf("%s: %w", w.source, err)
		w.tag, w.refused = c.Tag, err
	case err == nil, errors.Is(err, ErrUnchanged):
		w.tag, w.refused = c.Tag, nil
	default:
		err = fmt.Errorf("%s: %w", w.source, err)
	}
	if err != nil {
		return nil, err
	}
	return set, nil
}

// use puts a set in use, unless Check refuses it: then it returns why.
func (w *Watcher) use(set *Set) error {
	w.exchange.Lock()
	defer w.exchange.Unlock()
	if w.opts.Check != nil {
		if err := w.opts.Check(set); err != nil {
			return err
		}
	}
	w.set.Store(set)
	return nil
}

// newer says by a file's manifest whether it replaces the set in use.
func (w *Watcher) newer(m *Manifest, sum Checksum) error {
	s := w.Set()
	switch {
	case s == nil || m.Version > s.Version():
		return nil
	case sum == s.checksum:
		return ErrUnchanged
	case m.Version == s.Version():
		return refusef(RefusedVersion, "version %d again, with other contents: each build needs a version of its own", m.Version)
	}
	return refusef(RefusedVersion, "version %d is older than version %d, which is in use (`pushctl segments push --as-new` puts an older file back in use)", m.Version, s.Version())
}

// note records the outcome of a poll; set is the one that it put in use.
func (w *Watcher) note(set *Set, err error) {
	m, now := w.opts.Metrics, w.opts.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Polled, w.status.Err = now, nil
	_, refused := errors.AsType[*RefusedError](err)
	switch {
	case err == nil:
		w.status.Version, w.status.Checksum, w.status.Loaded = set.Version(), set.checksum.String(), now
		m.loaded.Inc()
		m.use(set)
		m.loadedAt.Set(float64(now.Unix()))
	case errors.Is(err, ErrUnchanged):
		m.unchanged.Inc()
	case refused:
		w.status.Err = err
		m.refused.Inc()
		return
	default:
		w.status.Err = err
		m.failed.Inc()
		return
	}
	w.status.Current = now
	m.currentAt.Set(float64(now.Unix()))
}
