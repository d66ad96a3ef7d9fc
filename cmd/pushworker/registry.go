package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/wiring"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/users"
)

func newRegistryCommand() *cobra.Command {
	var path string
	var rebuild bool
	cmd := &cobra.Command{
		Use:   "registry --config FILE",
		Short: "Keep Redis filled with users from push.users",
		Long: `Follows the topic push.users, which holds the truth about devices and preferences,
and writes each user's record into Redis, where the workers read it. A shard
that was wiped is noticed and built anew; meanwhile the workers wait, because
an empty Redis never means that a user has no device.

It also removes the tokens that Apple and Google called dead (push.feedback).

Two or more may run at once: each write is fenced, who comes late skips it.

Exit codes: 0 after a signal, 1 failed, 2 wrong usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			return failed(runRegistry(cmd.Context(), c, rebuild, cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file; apps are not needed")
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "build every shard anew at the start; delivery waits meanwhile")
	return cmd
}

// runRegistry connects, and follows until ctx ends.
func runRegistry(ctx context.Context, c *configs.Config, rebuild bool, logTo io.Writer) error {
	log := newLogger(logTo, c.Log)
	shards.LogTo(log)
	reg := newRegistry()
	h := newHealth("kafka", "redis", "shards")
	options, err := wiring.Kafka(c, log)
	if err != nil {
		return err
	}
	redisOptions, err := wiring.Redis(c)
	if err != nil {
		return err
	}
	stopAdmin, err := startAdmin(c, log, reg, h)
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
					return admin.CheckTopics(ctx, kafka.UsersTopic, kafka.FeedbackTopic)
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
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() { watch(ctx, h, "kafka", admin.Ping) })
	watches.Go(func() {
		watch(ctx, h, "redis", func(ctx context.Context) error { return shards.Ping(ctx, client) })
	})
	return keepRegistry(ctx, c, options, client, reg, log, rebuild, func(p users.Progress) {
		if p.Ready < shards.Users {
			h.set("shards", fmt.Errorf("%d of %d built, %d records to read", p.Ready, shards.Users, p.Lag))
			return
		}
		h.set("shards", nil)
	})
}

// keepRegistry follows push.users and push.feedback until ctx ends. progress
// is told after every check of the shards.
func keepRegistry(ctx context.Context, c *configs.Config, options kafka.Options, client shards.Client, reg prometheus.Registerer, log *slog.Logger, rebuild bool, progress func(users.Progress)) error {
	follower, err := kafka.NewFollower(options, kafka.UsersTopic, nil)
	if err != nil {
		return err
	}
	defer follower.Close()
	appendTo, err := wiring.NewUsersLog(options)
	if err != nil {
		return err
	}
	defer appendTo.Close()
	consumer, err := kafka.NewConsumer(options, kafka.FeedbackTopic, c.Registry.Group)
	if err != nil {
		return err
	}
	defer consumer.Close()

	metrics := users.NewMetrics(reg)
	ro := users.DefaultRegistryOptions()
	ro.CheckInterval, ro.MaxStale, ro.Rebuild, ro.Progress = c.Registry.CheckInterval, c.Registry.MaxStale, rebuild, progress
	registry, err := users.NewRegistry(client, &usersFollower{follower: follower}, appendTo, ro, metrics, log)
	if err != nil {
		return err
	}
	fo := users.DefaultFeedbackOptions()
	fo.PerMinute = c.Registry.PrunePerMinute
	feedback, err := users.NewFeedback(client, feedbackSource{consumer}, appendTo, fo, metrics, log)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = feedback.Run(ctx) }) // ends with ctx only, as the registry does
	err = registry.Run(ctx)
	running.Wait()
	return err
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
	return values, ctx.Err()
}
