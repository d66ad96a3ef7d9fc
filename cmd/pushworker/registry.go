package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/memory"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/worker"
)

func newRegistryCommand() *cobra.Command {
	var path string
	var rebuild bool
	cmd := &cobra.Command{
		Use:   "registry --config FILE",
		Short: "Keep Redis filled with users from push.users",
		Long: `Follows the topic push.users, the source of truth for devices and preferences,
and writes each user's record to Redis, where the workers read it. It notices a
wiped shard and rebuilds it. Meanwhile the workers wait, because an empty Redis
never means that a user has no device.

It also removes tokens that Apple or Google reported as dead (push.feedback), and with
registry.audiences notes in Cassandra who uses an app, for messages to all of them.

Several registries may run at once: each write is fenced, so a late one has no
effect.

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
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "rebuild every shard at the start; delivery waits meanwhile")
	return cmd
}

// runRegistry runs one registry, which logs to logTo.
func runRegistry(ctx context.Context, c *configs.Config, rebuild bool, logTo io.Writer) error {
	log := newLogger(logTo, c.Log)
	shards.LogTo(log)
	memory.Limit(log, 0)
	return worker.RunRegistry(ctx, worker.RegistryOptions{Config: c, Log: log, Metrics: newMetrics(), Rebuild: rebuild})
}
