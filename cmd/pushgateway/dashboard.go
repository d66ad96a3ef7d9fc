package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/memory"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/dashboards"
	"github.com/pushfleet/pushfleet/wiring/reach"
	"github.com/pushfleet/pushfleet/worker"
)

func newDashboardCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "dashboard --config FILE",
		Short: "Show a team the fleet live in browsers until a signal",
		Long: `Serves at gateway.dashboard.listen the page that "pushctl dashboard" serves to one
operator: what is sent, in progress and queued now, what became of notifications and why,
look-ups of notifications and users, dead letters and fan-outs. It reads push.events, the
groups' offsets, the DLQs, the status store and Redis, and keeps nothing.

Who comes logs in with a key of gateway.keys_file, which is read again when it changes:

  "rights": ["dashboard"]           sees the fleet
  "rights": ["dashboard", "admin"]  also redrives and dismisses dead letters, and pauses,
                                    resumes and cancels fan-outs, by typing what is to be done

A key must be for all apps, as the page shows all. The rights to send and to read open
nothing here: they are about what a key's own sender has sent. The audit topic, or the log,
keeps the name of the key by which something was done. Sessions last 12 hours, and end when
their key changes. The first line of gateway.receipts_file signs them.

TLS is that of gateway.tls; without it only a loopback address is served, unless
gateway.insecure says that a proxy has TLS. It does not wait for servers: the page says what
is missing. GET /healthz needs no key.

Exit codes: 0 after a signal, 1 failed, 2 wrong usage or configuration.`,
		Example: "  pushgateway dashboard --config worker.yaml\n  openssl rand -base64 32 | tee key | pushgateway keys hash",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(path)
			if err != nil {
				return err
			}
			if err := c.CheckDashboard(); err != nil {
				return &exitError{exitUsage, fmt.Errorf("configuration %s: %w", path, err)}
			}
			return failed(serveDashboard(cmd.Context(), dashboardOptions{Config: c, LogTo: cmd.ErrOrStderr()}))
		},
	}
	cmd.Flags().StringVarP(&path, "config", "c", "", "configuration file; of apps only the names are used")
	return cmd
}

// lookPatience is how long somebody who looks waits for a server to be reached.
const lookPatience = 10 * time.Second

// dashboardOptions are those of serveDashboard. Config must be valid and pass CheckDashboard.
type dashboardOptions struct {
	Config    *configs.Config
	LogTo     io.Writer
	Rows      reach.Rows     // nil = those in Cassandra
	Listening func(net.Addr) // told the address once; nil = nobody is
}

// serveDashboard serves the dashboard of a team until ctx ends.
func serveDashboard(ctx context.Context, o dashboardOptions) error {
	c := o.Config
	log := newLogger(o.LogTo, c.Log)
	shards.LogTo(log)
	memory.Limit(log, 0)
	keys, err := openFleetKeys(c)
	if err != nil {
		return err
	}
	certificate, err := wiring.OpenCertificate(&c.Gateway.TLS)
	if err != nil {
		return &worker.ConfigError{Key: "gateway.tls", Err: err}
	}
	servers := reach.New(c, reach.Options{ClientID: "pushgateway-dashboard", Patience: lookPatience, Rows: o.Rows, Log: log})
	defer servers.Close()
	reader, err := dashboards.NewReader(c, servers, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.Gateway.Dashboard.Listen)
	if err != nil {
		return fmt.Errorf("gateway.dashboard.listen: %w", err)
	}
	for _, n := range c.Insecure() {
		log.Warn("insecure", "key", n.Path, "what", n.Message)
	}
	watching, stop := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer stop()
	watches.Go(func() { keys.watch(watching, c.Gateway.ReloadKeys, log) })
	if certificate != nil {
		watches.Go(func() {
			certificate.Watch(watching, c.Gateway.ReloadKeys, func(err error) {
				if err != nil {
					log.Error("the certificate is not read; the former one stays in force", "error", err)
				}
			})
		})
	}
	see, act := keys.callers.OfFleet(keys.apps)
	log.Info("serving the dashboard", "at", listener.Addr().String(), "tls", certificate != nil, "keys", see, "acting", act)
	if o.Listening != nil {
		o.Listening(listener.Addr())
	}
	page := dashboards.Page{Config: c, Servers: servers, Reader: reader, Listener: listener, TLS: certificate.TLS(),
		Access: dashboard.NewNamedAccess(keys, certificate != nil), Log: log}
	return page.Serve(ctx)
}

// fleetKeys are the callers' keys as a dashboard takes them. It is safe for concurrent use.
type fleetKeys struct {
	callers *gateway.Callers
	signer  *gateway.Signer
	apps    []string // of the fleet
}

// openFleetKeys reads the keys for the first time. At least one must open the dashboard.
func openFleetKeys(c *configs.Config) (*fleetKeys, error) {
	callers, signer, err := checkKeys(c)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	k := &fleetKeys{callers, signer, wiring.AppNames(c)}
	if see, _ := callers.OfFleet(k.apps); see == 0 {
		return nil, &exitError{exitUsage, fmt.Errorf("gateway.keys_file: no key opens the dashboard: give one the right %q and all apps (%s)", gateway.Fleet, c.Gateway.KeysFile)}
	}
	return k, nil
}

// With implements dashboard.Keys.
func (k *fleetKeys) With(key string) (dashboard.Holder, error) {
	caller := k.callers.With(key)
	if caller == nil {
		return dashboard.Holder{}, dashboard.ErrUnknownKey
	}
	return k.holder(caller)
}

// Named implements dashboard.Keys.
func (k *fleetKeys) Named(name string) (dashboard.Holder, bool) {
	caller := k.callers.Named(name)
	if caller == nil {
		return dashboard.Holder{}, false
	}
	h, err := k.holder(caller)
	return h, err == nil
}

func (k *fleetKeys) holder(caller *gateway.Caller) (dashboard.Holder, error) {
	if err := caller.SeesFleet(k.apps); err != nil {
		return dashboard.Holder{}, err
	}
	return dashboard.Holder{Name: caller.Name, Admin: caller.ActsOnFleet(), Secret: k.signer.DashboardSecret(caller)}, nil
}

// watch reads the keys again until ctx ends.
func (k *fleetKeys) watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	k.callers.Watch(ctx, every, func(err error) {
		if err != nil {
			log.Error("keys are not read; the former ones stay in force", "error", err)
			return
		}
		see, act := k.callers.OfFleet(k.apps)
		log.Info("keys are in force", "keys", see, "acting", act)
	})
}
