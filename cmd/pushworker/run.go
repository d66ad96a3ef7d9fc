package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/worker"
)

func newRunCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Work on all configured lanes until a signal",
		Long: `Joins the consumer group of every lane and works until SIGTERM or SIGINT. Then it
stops polling, finishes what is in flight, writes the status, commits and
leaves the groups, within send.drain. A second signal ends it at once; what
was not committed is delivered again and confirmed.

The topics must exist (pushctl topics ensure), and the schema (pushctl schema
apply). A store that is away is named in the log and in /readyz, and waited for.

Exit codes: 0 drained, 1 failed, 2 wrong usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			if err := c.CheckRun(); err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			return failed(runWorker(cmd.Context(), c, cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file (configs/worker.yaml is a commented one)")
	return cmd
}

// failed makes an error exit with 1, one of the configuration with 2; the end of
// the context is no failure.
func failed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	var config *worker.ConfigError
	if errors.As(err, &config) {
		return &exitError{exitUsage, err}
	}
	return &exitError{exitFailed, err}
}

// runWorker is one worker, logging to logTo.
func runWorker(ctx context.Context, c *configs.Config, logTo io.Writer) error {
	log := newLogger(logTo, c.Log)
	shards.LogTo(log)
	o := worker.Options{Config: c, Log: log, Metrics: newMetrics(), Version: version, Exit: os.Exit}
	plant(&o)
	return worker.Run(ctx, o)
}

// newMetrics is the metrics registry of one process.
func newMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_build_info", Help: "The build that runs; always 1."}, []string{"version", "revision"})
	build.WithLabelValues(version, commit()).Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}
