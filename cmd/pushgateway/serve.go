package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/memory"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/reach"
	"github.com/pushfleet/pushfleet/worker"
)

func newServeCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "serve --config FILE",
		Short: "Answer callers until a signal",
		Long: `Answers at gateway.listen until SIGTERM or SIGINT. Then it takes no new request,
answers what is under way, within gateway.drain, and ends. A second signal ends
it at once; callers then repeat what they have no answer to, with the same ids.

It does not wait for Kafka, Cassandra or Redis, which it reads users from if
gateway.registry is true: what needs one that is away is answered 503, and /readyz at gateway.admin_listen names it.
Limits of senders (gateway.limits) are shared in Redis: without it each gateway admits its part.

Exit codes: 0 after a signal, 1 failed, 2 wrong usage or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadToServe(path)
			if err != nil {
				return err
			}
			return failed(serve(cmd.Context(), c, cmd.ErrOrStderr(), nil))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file; of apps only the names are used")
	return cmd
}

// serve runs one gateway, which logs to logTo. listening, if set, is told the address for
// callers, once.
func serve(ctx context.Context, c *configs.Config, logTo io.Writer, listening func(net.Addr)) error {
	log := newLogger(logTo, c.Log)
	shards.LogTo(log)
	memory.Limit(log, 0)
	u, closeUsers, err := openUsers(c, log)
	if err != nil {
		return err
	}
	defer closeUsers()
	o := worker.GatewayOptions{Config: c, Log: log, Metrics: newMetrics(), Listening: listening, Users: u}
	if c.Gateway.Registry {
		stop, err := openUserLimits(ctx, c, &o)
		if err != nil {
			return err
		}
		defer stop()
	}
	return worker.RunGateway(ctx, o)
}

// openUserLimits opens what tells how limits stand for users. stop ends it, and waits.
func openUserLimits(ctx context.Context, c *configs.Config, into *worker.GatewayOptions) (stop func(), err error) {
	o, err := wiring.Redis(c)
	if err != nil {
		return nil, err
	}
	client, err := shards.Open(o)
	if err != nil {
		return nil, err
	}
	u, done, err := newUserLimits(c, client, into.Log)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	into.UserLimits, into.InboxLimits = u, u
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { u.run(ctx) })
	return func() {
		end()
		running.Wait()
		done()
		_ = client.Close()
	}, nil
}

// openUsers opens what changes users and, if there is a registry, reads them. It connects
// to nothing yet. closeAll is called when no requests are answered any more.
func openUsers(c *configs.Config, log *slog.Logger) (u *gateway.Users, closeAll func(), err error) {
	options, err := wiring.Kafka(c, log)
	if err != nil {
		return nil, nil, err
	}
	var reads gateway.Registry
	closeRegistry := func() {}
	if c.Gateway.Registry {
		r, err := openRegistry(c, options)
		if err != nil {
			return nil, nil, err
		}
		reads, closeRegistry = r, r.close
	}
	topic, err := wiring.NewUsersLog(options)
	if err != nil {
		closeRegistry()
		return nil, nil, err
	}
	u = gateway.NewUsers(topic, reads)
	return u, func() {
		topic.Close() // what is still on its way ends with an error
		u.Close()
		closeRegistry()
	}, nil
}

// failed makes an error exit with code 1, or 2 for the configuration. A canceled
// context is not an error.
func failed(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return nil
	}
	var config *worker.ConfigError
	var file *reach.ConfigError
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		return exit
	case errors.As(err, &config), errors.As(err, &file):
		return &exitError{exitUsage, err}
	}
	return &exitError{exitFailed, err}
}

// newMetrics makes the metrics registry of the process.
func newMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "push_build_info", Help: "The running build; always 1."}, []string{"version", "revision"})
	build.WithLabelValues(version, commit()).Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}
