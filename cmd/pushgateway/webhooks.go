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

func newWebhooksCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "webhooks --config FILE",
		Short: "Tell senders of the ends of their notifications until a signal",
		Long: `Posts what workers write for the senders in gateway.webhooks.senders to the endpoints
in gateway.webhooks.file, signed as Standard Webhooks say: at least once, and again
until the endpoint answers 2xx or gateway.webhooks.keep is over. What is not delivered
by then is a dead letter in push.webhooks-dlq. Only public https addresses are called.
Start as many as you like: they are members of consumer groups, one for each sender. One
that is killed leaves what it had open; the others tell it again, with the same webhook-id.

On SIGTERM or SIGINT it ends the calls under way, within send.drain, gives back the rest,
and ends. /readyz at gateway.webhooks.admin_listen names what is away.

docs/webhooks.md shows what is posted, and how it is verified.

Exit codes: 0 after a signal, 1 failed, 2 wrong usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			if err := c.CheckWebhooks(); err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			return failed(runWebhooks(cmd.Context(), c, cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file; apps and keys are not needed")
	return cmd
}

// runWebhooks runs one process of webhooks, which logs to logTo.
func runWebhooks(ctx context.Context, c *configs.Config, logTo io.Writer) error {
	log := newLogger(logTo, c.Log)
	memory.Limit(log, 0)
	return worker.RunWebhooks(ctx, worker.WebhooksOptions{Config: c, Log: log, Metrics: newMetrics(), Version: version})
}
