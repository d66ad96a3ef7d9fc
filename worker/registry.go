package worker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/wiring"
)

// RegistryOptions are the options of a registry. Config must be valid; Config, Log
// and Metrics are required.
type RegistryOptions struct {
	Config  *configs.Config
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Rebuild bool // every shard is built anew at the start
	// Dial is as that of Options.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Progress, if set, is told after every check of the shards, by one goroutine.
	Progress func(users.Progress)
	// OpenAudiences replaces opening Cassandra, where registry.audiences is set; nil = Cassandra.
	OpenAudiences func(ctx context.Context) (store AudienceStore, done func(), err error)
}

// ConfigError says that the configuration contradicts what a server says.
type ConfigError struct {
	Key string
	Err error
}

func (e *ConfigError) Error() string { return e.Key + ": " + e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// RunRegistry connects, and follows push.users and push.feedback until ctx
// ends. Its error is a *ConfigError if that is what it is.
func RunRegistry(ctx context.Context, o RegistryOptions) error {
	c, log := o.Config, o.Log
	h := newHealth("kafka", "redis", "shards")
	options, err := wiring.Kafka(c, log)
	if err != nil {
		return err
	}
	redisOptions, err := wiring.Redis(c)
	if err != nil {
		return err
	}
	options.Dial, redisOptions.Dialer = o.Dial, o.Dial
	h.tellInsecure(c, log)
	stopAdmin, err := startAdmin("registry.listen", c.Registry.Listen, c.Admin.PProf, log, o.Metrics, h)
	if err != nil {
		return err
	}
	defer stopAdmin()
	client, err := shards.Open(redisOptions)
	if err != nil {
		return err
	}
	defer client.Close()
	admin, err := kafka.NewAdmin(options)
	if err != nil {
		return err
	}
	defer admin.Close()
	err = connectAll(
		func() error {
			return connect(ctx, log, h, "kafka", strings.Join(c.Kafka.Brokers, ","), func(ctx context.Context) error {
				return limited(ctx, c.Kafka.CommitTimeout, func(ctx context.Context) error {
					return admin.CheckTopics(ctx, kafka.UsersTopic, kafka.QuarantineTopic, kafka.FeedbackTopic)
				})
			})
		},
		func() error {
			return connect(ctx, log, h, "redis", strings.Join(c.Redis.Addresses, ","), func(ctx context.Context) error {
				return limited(ctx, 2*c.Redis.ReadTimeout, func(ctx context.Context) error { return shards.CheckServer(ctx, client, false) })
			})
		},
	)
	if err != nil {
		return err
	}
	if err := checkRetention(ctx, admin, c, log); err != nil {
		return err
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() { checkStore(ctx, h, "kafka", admin.Ping) })
	watches.Go(func() {
		checkStore(ctx, h, "redis", func(ctx context.Context) error { return shards.Ping(ctx, client) })
	})
	watches.Go(func() {
		watchEvictions(ctx, h, log, func(ctx context.Context) (map[string]int64, error, error) { return shards.Evictions(ctx, client) })
	})
	progress := o.Progress
	o.Progress = func(p users.Progress) {
		h.set("shards", shardsState(p))
		if progress != nil {
			progress(p)
		}
	}
	stopAudiences, err := o.startAudiences(ctx, options, admin, h)
	if err != nil {
		return err
	}
	defer stopAudiences()
	return o.follow(ctx, options, client)
}

// shardsState returns the state of the shards for /readyz: nil = they are complete
// and push.users is followed.
func shardsState(p users.Progress) error {
	switch {
	case p.Err != nil:
		return fmt.Errorf("push.users cannot be followed: %w", p.Err)
	case p.Ready < shards.Users:
		return fmt.Errorf("%d of %d built, %d records to read", p.Ready, shards.Users, p.Lag)
	}
	return nil
}

// checkRetention refuses a registry.max_stale that is not below how long
// push.users keeps tombstones: of a shard that was left behind for longer, it
// would miss some, and bring back devices that were removed.
func checkRetention(ctx context.Context, admin *kafka.Admin, c *configs.Config, log *slog.Logger) error {
	const key = "delete.retention.ms"
	var value string
	err := limited(ctx, c.Kafka.CommitTimeout, func(ctx context.Context) (err error) {
		value, err = admin.TopicConfig(ctx, kafka.UsersTopic, key)
		return err
	})
	ms, parseErr := strconv.ParseInt(value, 10, 64)
	if err != nil || parseErr != nil {
		log.Warn("cannot compare registry.max_stale with the retention of tombstones in push.users", "config", key, "value", value, "error", err)
		return ctx.Err()
	}
	if kept := time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond; c.Registry.MaxStale >= kept {
		return &ConfigError{"registry.max_stale", fmt.Errorf("%s must be less than %s of %s, %s: a shard that lags behind for longer would miss removals",
			c.Registry.MaxStale, key, kafka.UsersTopic, kept)}
	}
	return nil
}

// follow follows both topics until ctx ends.
func (o *RegistryOptions) follow(ctx context.Context, options kafka.Options, client shards.Client) error {
	c, log := o.Config, o.Log
	topics, closeTopics, err := openRegistryTopics(options)
	if err != nil {
		return err
	}
	defer closeTopics()
	consumer, err := kafka.NewConsumer(options, kafka.FeedbackTopic, c.Registry.Group)
	if err != nil {
		return err
	}
	defer consumer.Close()

	metrics := users.NewMetrics(o.Metrics)
	ro := users.DefaultRegistryOptions()
	ro.CheckInterval, ro.MaxStale, ro.Rebuild, ro.Progress = c.Registry.CheckInterval, c.Registry.MaxStale, o.Rebuild, o.Progress
	ro.Devices = record.DeviceLimits{User: c.Registry.DevicesPerUser, App: c.Registry.DevicesPerApp}
	registry, err := users.NewRegistry(client, topics, ro, metrics, log)
	if err != nil {
		return err
	}
	fo := users.DefaultFeedbackOptions()
	fo.PerMinute = c.Registry.PrunePerMinute
	feedback, err := users.NewFeedback(client, feedbackSource{consumer}, topics.Log, fo, metrics, log)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = feedback.Run(ctx) }) // ends with ctx only, as the registry does
	err = registry.Run(ctx)
	running.Wait()
	return err
}

// openRegistryTopics opens what the registry reads and writes. It connects to
// nothing yet.
func openRegistryTopics(options kafka.Options) (t users.RegistryTopics, closeAll func(), err error) {
	var closes []func()
	closeAll = func() {
		for _, c := range closes {
			c()
		}
	}
	for _, to := range []*users.Follower{&t.Follower, &t.Rescan} {
		follower, err := kafka.NewFollower(options, kafka.UsersTopic, nil)
		if err != nil {
			closeAll()
			return t, nil, err
		}
		closes = append(closes, follower.Close)
		*to = &usersFollower{follower: follower}
	}
	for _, l := range []struct {
		to   *users.Log
		open func(kafka.Options) (wiring.UsersLog, error)
	}{{&t.Log, wiring.NewUsersLog}, {&t.Quarantine, wiring.NewQuarantineLog}} {
		log, err := l.open(options)
		if err != nil {
			closeAll()
			return t, nil, err
		}
		closes = append(closes, log.Close)
		*l.to = log
	}
	return t, closeAll, nil
}

// pollRecords is the most records that one poll hands out.
const pollRecords = 10_000

// feedbackSource reads push.feedback for package users.
type feedbackSource struct{ *kafka.Consumer }

// Poll implements users.FeedbackSource.
func (s feedbackSource) Poll(ctx context.Context) ([][]byte, error) {
	records, err := s.Consumer.Poll(ctx, pollRecords)
	if err != nil {
		return nil, err
	}
	values := make([][]byte, len(records))
	for i, r := range records {
		values[i] = r.Value
	}
	return values, nil
}
