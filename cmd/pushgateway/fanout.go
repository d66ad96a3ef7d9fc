package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/memory"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/worker"
)

func newFanoutCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "fanout --config FILE",
		Short: "Make messages for many receivers into records of lanes until a signal",
		Long: `Works on the messages that gateways have accepted for all subscribers of a topic, or
all users of an app (gateway.audiences), or those in a segment (segments.source): each
becomes chunks, and each chunk a record of the lane for every receiver in it.
Start as many as you like: they are members of consumer groups. One that is killed
leaves the chunks that it had open; the others do them again, with the same ids, which
the workers take for duplicates.

On SIGTERM or SIGINT it gives back what it has begun, within send.drain, and ends.
It waits for Kafka and Cassandra as long as they are away, and /readyz at
gateway.fanout.admin_listen names what is. Where senders may reach so many receivers a
day (recipients in gateway.limits), they are counted in Redis: while that is away,
messages of these senders wait.

Exit codes: 0 after a signal, 1 failed, 2 wrong usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			if err := c.CheckFanout(); err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			return failed(runFanout(cmd.Context(), c, cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file; apps and keys are not needed")
	return cmd
}

// runFanout runs one process of fan-outs, which logs to logTo.
func runFanout(ctx context.Context, c *configs.Config, logTo io.Writer) error {
	log := newLogger(logTo, c.Log)
	memory.Limit(log, 0)
	return worker.RunFanout(ctx, worker.FanoutOptions{Config: c, Log: log, Metrics: newMetrics()})
}
