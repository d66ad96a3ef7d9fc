package users

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
)

// errPartitions says that push.users has another number of partitions than
// when the shards were filled: users have moved, and their order is lost.
var errPartitions = errors.New("push.users has changed its number of partitions, and users have moved to others, so nothing is applied any more: " +
	"copy it in order of time into a new topic, and begin with registry --rebuild (docs/operations.md#pushregistryfails)")

// errRewound says that Redis has applied more than the topic holds: the topic
// was created again, or Kafka lost acknowledged records.
var errRewound = errors.New("push.users ends before what was applied; if it was made anew, rebuild")

// RegistryOptions are the settings of a Registry.
type RegistryOptions struct {
	// CheckInterval is how often all 256 shards are looked at: a wiped one is
	// noticed after at most this time. One check is 768 small commands in one
	// round trip.
	CheckInterval time.Duration
	// BeatInterval is how often a shard without news gets its offsets written,
	// so that a restart need not read far back.
	BeatInterval time.Duration
	// MaxStale is for how long a shard may have been left behind (restored from
	// an old backup, no registry running) and still be continued instead of
	// built anew. It must be below the topic's delete.retention.ms (Kafka's
	// default: 24 h): after that, tombstones it has missed may be gone.
	MaxStale time.Duration
	// RetryDelay is the pause after an error; it doubles up to MaxRetryDelay.
	RetryDelay, MaxRetryDelay time.Duration
	// Devices bounds what one user can make the registry keep.
	Devices record.DeviceLimits
	// Rebuild builds every shard anew at the start. Delivery stalls meanwhile.
	Rebuild bool
	// Progress, when set, is called after every check, and when following
	// failed, on Run's goroutine.
	Progress func(Progress)
}

// DefaultRegistryOptions: 100 devices are a record of some 20 KB, which every
// batch with that user reads, and more than anybody has; a wiped shard is noticed within a second; a restart
// reads at most half a minute of the topic twice; 20 h leaves 4 h of Kafka's
// 24 h for reading on from there.
func DefaultRegistryOptions() RegistryOptions {
	return RegistryOptions{
		CheckInterval: time.Second,
		BeatInterval:  30 * time.Second,
		MaxStale:      20 * time.Hour,
		Devices:       record.DeviceLimits{User: 100, App: 20},
		RetryDelay:    100 * time.Millisecond,
		MaxRetryDelay: 10 * time.Second,
	}
}

func (o *RegistryOptions) check() error {
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"CheckInterval", o.CheckInterval}, {"BeatInterval", o.BeatInterval}, {"MaxStale", o.MaxStale}, {"RetryDelay", o.RetryDelay}} {
		if d.d <= 0 {
			return fmt.Errorf("registry options: %s must be above zero", d.name)
		}
	}
	if o.Devices.User <= 0 || o.Devices.App <= 0 {
		return errors.New("registry options: Devices must be above zero")
	}
	if o.MaxRetryDelay < o.RetryDelay {
		return errors.New("registry options: MaxRetryDelay is below RetryDelay")
	}
	return nil
}

// Progress is how far a registry has got.
type Progress struct {
	Ready   int    // complete shards, of 256
	Lag     int64  // offsets that are to be read, over all partitions
	Applied uint64 // records applied since the start, once per shard they change
	// Err is why the topic is not followed; nil = it is. With it, Ready and Lag
	// are not known.
	Err error
}

// RegistryTopics are what a Registry reads and writes. All are the caller's to
// close.
type RegistryTopics struct {
	// Follower follows push.users.
	Follower Follower
	// Rescan reads push.users once more from its start, beside Follower, when a
	// stored record must be rebuilt.
	Rescan Follower
	// Log appends to push.users what is to be settled in the topic itself: the
	// removal of a token from its former owner.
	Log Log
	// Quarantine appends to push.users.quarantine what cannot be read.
	Quarantine Log
}

// Registry follows push.users and keeps Redis equal to it. Several registries
// may follow the same topic into the same Redis: each write is fenced, and a
// late registry skips what is applied.
type Registry struct {
	client  redis.UniversalClient
	topics  RegistryTopics
	options RegistryOptions
	metrics *Metrics
	logger  *slog.Logger
	script  *redis.Script
	applied uint64

	// Owned by Run. Between two polls, for each shard and partition: every
	// record of the shard below pos[p] is applied, or pos[p] <= applied[p].
	shards  [shards.Users]shardState
	had     int // partitions of the topic when it was first looked at; 0 = not yet
	spans   []Span
	pos     []int64 // per partition: what Poll hands out next
	seek    bool    // pos was set back: the follower must be told
	recheck bool    // a shard needs attention before the next interval
	healthy bool    // something worked since the last error
	looked  bool    // what an older version could not read was looked at again
	checked time.Time
	repair  repair
	// rescanAt is when a reading from the start may be tried again.
	rescanAt time.Time
}

// NewRegistry makes a registry that fills client, the caller's, from push.users.
// metrics may be nil. It returns an error when an option cannot work.
func NewRegistry(client redis.UniversalClient, t RegistryTopics, o RegistryOptions, metrics *Metrics, logger *slog.Logger) (*Registry, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	return &Registry{
		client: client, topics: t, options: o, metrics: metrics, logger: logger,
		script: redis.NewScript(shardScriptText),
	}, nil
}

// Run follows the topic until ctx ends, and returns ctx's error. Every error is
// logged and retried from what Redis has applied: Redis or Kafka down, a topic
// that has changed its number of partitions. It may be called once.
func (r *Registry) Run(ctx context.Context) error {
	defer r.repair.stop()
	backoff := push.Backoff{First: r.options.RetryDelay, Longest: r.options.MaxRetryDelay}
	for failed := 1; ; failed++ {
		r.healthy = false
		err := r.follow(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if r.healthy {
			failed = 1
		}
		r.fail(err)
		delay := backoff.After(failed)
		r.logger.Error("registry: following push.users failed, retrying", "error", err, "in", delay)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

// follow starts from what Redis says and goes on until something fails.
func (r *Registry) follow(ctx context.Context) error {
	for s := range r.shards {
		r.shards[s] = shardState{}
	}
	r.pos = nil
	r.repair.stop()
	if err := r.check(ctx); err != nil {
		return err
	}
	for {
		if r.recheck || time.Since(r.checked) >= r.options.CheckInterval {
			if err := r.check(ctx); err != nil {
				return err
			}
		}
		if r.seek {
			if err := r.topics.Follower.Seek(ctx, slices.Clone(r.pos)); err != nil {
				return fmt.Errorf("seeking in push.users: %w", err)
			}
			r.seek = false
		}
		if err := r.finishRepair(ctx); err != nil {
			return err
		}
		fetched, err := r.poll(ctx)
		if err != nil {
			return err
		}
		if err := r.apply(ctx, fetched); err != nil {
			return err
		}
		r.healthy = true
	}
}

// poll waits for records, but not longer than until the next check.
func (r *Registry) poll(ctx context.Context) ([]Fetched, error) {
	until, cancel := context.WithDeadline(ctx, r.checked.Add(r.options.CheckInterval))
	defer cancel()
	fetched, err := r.topics.Follower.Poll(until)
	if err != nil && (ctx.Err() != nil || until.Err() == nil) {
		return nil, fmt.Errorf("polling push.users: %w", err)
	}
	return fetched, nil
}

// caughtUp reports whether everything that the topic had at the last check has
// been read.
func (r *Registry) caughtUp() bool {
	for p := range r.spans {
		if r.pos[p] < r.spans[p].End {
			return false
		}
	}
	return true
}

// reached is up to where a shard has applied partition p: it may be further
// than it says, when nothing came for it.
func (r *Registry) reached(st *shardState, p int) int64 { return max(st.Applied[p], r.pos[p]) }
