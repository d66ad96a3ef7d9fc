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

	"github.com/pushfleet/pushfleet/cmd/memory"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/worker"
)

func newRunCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run a worker on all configured lanes until a signal",
		Long: `Joins the consumer group of every lane and works until SIGTERM or SIGINT. Then it
stops polling, finishes what is in flight, writes the status, commits and
leaves the groups, within send.drain. A second signal ends it at once; the next
worker then reads again what was not committed, and confirms it.

The topics (pushctl topics ensure) and the schema (pushctl schema apply) must
exist. The worker waits for a store that is down, and names it in the log and in
/readyz.

Exit codes: 0 drained, 1 failed, 2 wrong usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadToRun(path)
			if err != nil {
				return err
			}
			return failed(runWorker(cmd.Context(), c, path, cmd.ErrOrStderr()))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file; configs/worker.yaml is an example with comments")
	return cmd
}

// loadToRun reads the configuration of a worker. At the start and each time that it is
// read again it must be one that a worker can run with: a file that is being written, and
// is empty at that moment, is a valid configuration, without limits and without apps.
func loadToRun(path string) (*configs.Config, error) {
	c, err := loadConfig(path)
	if err != nil {
		return nil, err
	}
	if err := c.CheckRun(); err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
	}
	return c, nil
}

// failed makes an error exit with code 1, or 2 for the configuration. A canceled
// context is not an error.
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

// runWorker runs one worker with the configuration c of the file at path, which it
// reads again from time to time. It logs to logTo.
func runWorker(ctx context.Context, c *configs.Config, path string, logTo io.Writer) error {
	log := newLogger(logTo, c.Log)
	shards.LogTo(log)
	memory.Limit(log, int64(c.MemoryBound().Total()))
	o := worker.Options{Config: c, Log: log, Metrics: newMetrics(), Version: version, Exit: os.Exit,
		Reload: func() (*configs.Config, error) { return loadToRun(path) }}
	plant(&o)
	return worker.Run(ctx, o)
}

// newMetrics makes the metrics registry of the process.
func newMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_build_info", Help: "The running build; always 1."}, []string{"version", "revision"})
	build.WithLabelValues(version, commit()).Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}
