package users

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/state"
)

// FeedbackOptions are the settings of a Feedback.
type FeedbackOptions struct {
	// PerMinute is how many devices may be removed a minute, by all registries of
	// the fleet together; further reports wait in the topic. It keeps a provider,
	// or a bug, that calls every token dead from emptying the registry before a
	// person has seen it.
	PerMinute int
	// RetryDelay is the pause after an error; it doubles up to MaxRetryDelay.
	RetryDelay, MaxRetryDelay time.Duration
}

// DefaultFeedbackOptions: 6,000 a minute is 100 a second, so 0.05 % dead
// tokens at 200,000 pushes a second; a day removes at most 8.6 million.
func DefaultFeedbackOptions() FeedbackOptions {
	return FeedbackOptions{PerMinute: 6000, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: 10 * time.Second}
}

// Feedback removes the devices that providers have called dead, by appending
// tombstones to push.users: the topic is the truth, and the registry then
// takes them out of Redis. A report is committed when its tombstones are
// acknowledged, so none is lost, and reading one twice does no harm.
type Feedback struct {
	client  redis.UniversalClient
	reader  *Reader
	source  FeedbackSource
	log     Log
	options FeedbackOptions
	metrics *Metrics
	logger  *slog.Logger
	guard   *pruneGuard
}

// NewFeedback reads reports from source, looks up devices through client, and
// appends removals to log; all stay the caller's. metrics may be nil. It
// returns an error when an option cannot work.
func NewFeedback(client redis.UniversalClient, source FeedbackSource, log Log, o FeedbackOptions, metrics *Metrics, logger *slog.Logger) (*Feedback, error) {
	if o.PerMinute <= 0 {
		return nil, errors.New("feedback options: PerMinute must be above zero")
	}
	if o.RetryDelay <= 0 || o.MaxRetryDelay < o.RetryDelay {
		return nil, errors.New("feedback options: RetryDelay must be above zero and not above MaxRetryDelay")
	}
	if metrics == nil {
		metrics = NewMetrics(nil)
	}
	return &Feedback{
		client: client, reader: NewReader(client, false), source: source, log: log,
		options: o, metrics: metrics, logger: logger, guard: newPruneGuard(client, o.PerMinute),
	}, nil
}

// Run works until ctx ends, and returns ctx's error. Errors are logged and the
// same reports retried. A shard that is not built yet is an error too, because
// its devices are still unknown. It may be called once.
func (f *Feedback) Run(ctx context.Context) error {
	for {
		var values [][]byte
		err := f.persist(ctx, "reading", func() (err error) {
			values, err = f.source.Poll(ctx)
			return err
		})
		if err != nil {
			return err
		}
		reports := f.parse(values)
		if err := f.persist(ctx, "removing devices", func() error { return f.remove(ctx, reports) }); err != nil {
			return err
		}
		if err := f.persist(ctx, "committing", func() error { return f.source.Commit(ctx) }); err != nil {
			return err
		}
	}
}

// persist repeats a step until it works or ctx ends.
func (f *Feedback) persist(ctx context.Context, doing string, step func() error) error {
	backoff := push.Backoff{First: f.options.RetryDelay, Longest: f.options.MaxRetryDelay}
	for failed := 1; ; failed++ {
		err := step()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			return nil
		}
		f.metrics.feedbackErrors.Inc()
		delay := backoff.After(failed)
		f.logger.Error("feedback: "+doing+" failed, retrying", "error", err, "in", delay)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

// report is one dead token, as push.feedback tells it.
type report struct {
	UserID    string `json:"user_id"` // empty, or the device hash, for a bare device
	Device    string `json:"device"`  // its hash
	DeadSince int64  `json:"dead_since_ms"`
	At        int64  `json:"at_ms"`
}

// bound is the latest registration that the report takes away: not one that is
// newer than when the token died, as far as the provider said, nor than the
// send that failed, as far as the worker said. ok is false when nobody said.
func (r *report) bound() (t time.Time, ok bool) {
	switch {
	case r.DeadSince > 0:
		return time.UnixMilli(r.DeadSince), true
	case r.At > 0:
		return time.UnixMilli(r.At), true
	}
	return time.Time{}, false
}

func (f *Feedback) parse(values [][]byte) []report {
	reports := make([]report, 0, len(values))
	for _, v := range values {
		var r report
		if err := json.Unmarshal(v, &r); err != nil || record.CheckHash(r.Device) != nil {
			f.metrics.unread.Inc()
			f.logger.Warn("feedback: skipping a report that cannot be read")
			continue
		}
		reports = append(reports, r)
	}
	return reports
}

// remove appends the tombstones that the reports ask for.
func (f *Feedback) remove(ctx context.Context, reports []report) error {
	if len(reports) == 0 {
		return nil
	}
	suspects, unknown, err := f.suspects(ctx, reports)
	if err != nil {
		return err
	}
	owners := make([]string, len(suspects))
	found := make([]*push.User, len(suspects))
	for i := range suspects {
		owners[i], found[i] = suspects[i].user, new(push.User)
	}
	if err := f.reader.Fetch(ctx, owners, found); err != nil {
		return err
	}
	var records []Record
	newer := 0
	for i, s := range suspects {
		switch removal, verdict := s.judge(found[i]); verdict {
		case dead:
			records = append(records, removal)
		case registeredSince:
			newer++
		case notThere:
			unknown++
		}
	}
	if err := f.append(ctx, records); err != nil {
		return err
	}
	f.metrics.removed.Add(float64(len(records)))
	f.metrics.newer.Add(float64(newer))
	f.metrics.unknown.Add(float64(unknown))
	return nil
}

// suspect is a user who may have the reported device.
type suspect struct {
	user   string
	report *report
}

type verdict uint8

const (
	notThere verdict = iota
	registeredSince
	dead
)

// judge decides about one device of a user. A removal is limited to the
// registrations that the report is about, because a newer one may be on its
// way through the topic.
func (s *suspect) judge(u *push.User) (Record, verdict) {
	d := record.DeviceOf(u, s.report.Device)
	if d == nil {
		return Record{}, notThere
	}
	bound, ok := s.report.bound()
	if !ok {
		bound = d.RegisteredAt
	}
	if d.RegisteredAt.UnixMilli() > bound.UnixMilli() {
		return Record{}, registeredSince
	}
	return Record{Key: record.DeviceKey(s.user, s.report.Device), IfNotAfter: bound}, dead
}

// suspects are, for each report, the user it names and the users that claim the
// token in the index: a report about a bare device names no user. unknown is
// the number of reports without any.
func (f *Feedback) suspects(ctx context.Context, reports []report) (list []suspect, unknown int, err error) {
	pipe := f.client.Pipeline()
	entries := make([]*redis.SliceCmd, len(reports))
	for i := range reports {
		hash := reports[i].Device
		entries[i] = pipe.MGet(ctx, shards.EpochKey(state.TokenHome(hash)), state.TokenKey(hash))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for i := range reports {
		cs, err := claimsOf(entries[i], reports[i].Device)
		if errors.Is(err, errEntry) {
			f.lost(ctx, reports[i].Device) // the named user is checked all the same
		} else if err != nil {
			return nil, 0, fmt.Errorf("looking up the owner of a token: %w", err)
		}
		before, named := len(list), reports[i].UserID
		if record.CheckUser(named) == nil && named != reports[i].Device {
			list = append(list, suspect{named, &reports[i]})
		}
		for _, c := range cs {
			if c.User != named {
				list = append(list, suspect{c.User, &reports[i]})
			}
		}
		if len(list) == before {
			unknown++
		}
	}
	return list, unknown, nil
}

// errEntry says that an entry of the token index cannot be read.
var errEntry = errors.New("entry of the token index")

// lost tells the registry of an entry that cannot be read. If that fails, the
// next report about the token tells it.
func (f *Feedback) lost(ctx context.Context, hash string) {
	_ = f.client.SAdd(ctx, state.OpenKey(state.TokenHome(hash)), record.LostToken+hash).Err()
}

// claimsOf wraps errEntry when it is the entry that cannot be read.
func claimsOf(cmd *redis.SliceCmd, hash string) (record.Claims, error) {
	values, err := cmd.Result()
	if err != nil {
		return nil, err
	}
	if len(values) != 2 {
		return nil, errReply
	}
	marker := bytesOf(values[0])
	if marker == nil {
		return nil, &UnbuiltError{Shard: state.TokenHome(hash)}
	}
	build, err := state.ParseBuild(string(marker))
	if err != nil {
		return nil, err
	}
	cs, err := record.DecodeClaims(bytesOf(values[1]), build)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEntry, err)
	}
	return cs, nil
}

// append appends removals, no more than the guard lets through.
func (f *Feedback) append(ctx context.Context, records []Record) error {
	for len(records) > 0 {
		n, wait, err := f.guard.take(ctx, len(records))
		if err != nil {
			return err
		}
		if n == 0 {
			f.metrics.waiting.Set(float64(len(records)))
			f.logger.Warn("feedback: more dead tokens a minute than may be removed, the rest waits",
				"waiting", len(records), "per_minute", f.options.PerMinute)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
			continue
		}
		if err := f.log.Append(ctx, records[:n]); err != nil {
			return err
		}
		records = records[n:]
		f.metrics.waiting.Set(float64(len(records)))
	}
	return nil
}
