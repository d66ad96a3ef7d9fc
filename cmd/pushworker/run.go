package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
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

// failed makes an error exit with 1, unless it says another code; the end of the
// context is no failure.
func failed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	var exit *exitError
	if errors.As(err, &exit) {
		return err
	}
	return &exitError{exitFailed, err}
}

// runWorker connects, works and drains.
func runWorker(ctx context.Context, c *configs.Config, logTo io.Writer) error {
	log := newLogger(logTo, c.Log)
	shards.LogTo(log)
	reg := newRegistry()
	w := &worker{exit: os.Exit, config: c, log: log, metrics: reg, health: newHealth("kafka", "redis", "cassandra", "lanes")}
	var err error
	if w.kafka, err = wiring.Kafka(c, log); err != nil {
		return err
	}
	w.health.tellInsecure(c, log)
	stopAdmin, err := startAdmin("admin.listen", c.Admin.Listen, c.Admin.PProf, log, reg, w.health)
	if err != nil {
		return err
	}
	defer stopAdmin()
	for _, n := range c.ShortMemory() {
		log.Info("dedupe", "key", n.Path, "what", n.Message)
	}
	log.Info("starting", "version", version, "memory_bound_mib", int64(c.MemoryBound().Total())>>20, "lanes", len(c.Lanes), "apps", len(c.Apps))

	if w.routes, err = openRoutes(c, log); err != nil {
		return err
	}
	w.health.tell(func() []string { return w.routes.lines(time.Now()) })
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := w.routes.close(closing); err != nil {
			log.Warn("closing providers", "error", err)
		}
	}()
	closeStores, err := w.connectStores(ctx)
	if err != nil {
		return err
	}
	defer closeStores()

	watching, stopWatching := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stopWatching()
	watches.Go(func() { w.watchStores(watching) })

	context.AfterFunc(ctx, func() { log.Info("draining: a second signal ends at once", "budget", c.Send.Drain) })
	if err := w.run(ctx); err != nil {
		return err
	}
	log.Info("drained")
	return nil
}

// watchStores keeps /readyz true about the stores while the worker runs.
func (w *worker) watchStores(ctx context.Context) {
	admin, err := kafka.NewAdmin(w.kafka)
	if err != nil {
		w.log.Error("cannot watch Kafka", "error", err)
		return
	}
	defer admin.Close()
	looks := map[string]func(context.Context) error{
		"kafka": admin.Ping,
		"redis": func(ctx context.Context) error { return shards.Ping(ctx, w.redis) },
	}
	if c, ok := w.status.(*status.Cassandra); ok {
		looks["cassandra"] = c.Ping
	}
	var wg sync.WaitGroup
	for name, look := range looks {
		wg.Go(func() { watch(ctx, w.health, name, look) })
	}
	wg.Wait()
}

// newRegistry is the metrics registry of one process.
func newRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_build_info", Help: "The build that runs; always 1."}, []string{"version", "revision"})
	build.WithLabelValues(version, commit()).Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// startAdmin serves metrics and health at an address, that of this key of the
// configuration, unless it is empty.
func startAdmin(key, at string, pprof bool, log *slog.Logger, reg *prometheus.Registry, h *health) (stop func(), err error) {
	if at == "" {
		return func() {}, nil
	}
	s, err := serveAdmin(at, adminHandler(reg, h, pprof))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	log.Info("serving /metrics, /livez, /readyz", "at", s.addr, "pprof", pprof)
	return s.close, nil
}
