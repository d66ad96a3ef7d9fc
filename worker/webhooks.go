package worker

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/gateway/webhooks"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring"
)

// WebhooksOptions are the options of a process of webhooks. Config must be valid and pass
// CheckWebhooks; Config, Log and Metrics are required.
type WebhooksOptions struct {
	Config  *configs.Config
	Log     *slog.Logger
	Metrics *prometheus.Registry
	Version string // of the program, which endpoints are told
	// Dial is as that of Options, to Kafka.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// CheckAddress replaces webhooks.CheckAddress, and Roots the system's certificates, for
	// endpoints of a test.
	CheckAddress func(netip.Addr) error
	Roots        *x509.CertPool
}

// RunWebhooks delivers what senders are told until ctx ends. Then it ends the calls under
// way, gives back the rest, and returns.
func RunWebhooks(ctx context.Context, o WebhooksOptions) error {
	c, log := o.Config, o.Log
	h := newHealth("kafka")
	options, err := wiring.Kafka(c, log)
	if err != nil {
		return err
	}
	options.Dial = o.Dial
	check := o.CheckAddress
	if check == nil {
		check = webhooks.CheckAddress
	}
	endpoints, err := webhooks.OpenEndpoints(func() ([]byte, error) {
		text, err := c.Gateway.Webhooks.WebhooksFile()
		return []byte(text.Reveal()), err
	}, check)
	if err != nil {
		return &ConfigError{"gateway.webhooks.file", err}
	}
	h.tellInsecure(c, log)
	aside := newHealth()
	h.tell(func() []string {
		_, lines := aside.report()
		return lines
	})
	stopAdmin, err := startAdmin("gateway.webhooks.admin_listen", c.Gateway.Webhooks.AdminListen, c.Admin.PProf, log, o.Metrics, h)
	if err != nil {
		return err
	}
	defer stopAdmin()
	admin, err := kafka.NewAdmin(options)
	if err != nil {
		return err
	}
	defer admin.Close()
	err = connect(ctx, log, h, "kafka", strings.Join(c.Kafka.Brokers, ","), func(ctx context.Context) error {
		return limited(ctx, c.Kafka.CommitTimeout, func(ctx context.Context) error {
			return admin.CheckTopics(ctx, append(wiring.WebhooksTopics(c), kafka.DeadWebhooksTopic)...)
		})
	})
	if err != nil {
		return err
	}
	senders := c.Gateway.Webhooks.Senders
	w := &openWebhooks{config: c, log: log, kafka: options, health: h, aside: aside, consumed: kafka.NewMetrics(o.Metrics), metrics: webhooks.NewMetrics(o.Metrics, senders), endpoints: endpoints}
	w.caller = webhooks.NewCaller(webhooks.CallerOptions{Timeout: c.Gateway.Webhooks.Timeout, AtOnce: c.Gateway.Webhooks.AtOnce, Check: check, Roots: o.Roots,
		Agent: "pushfleet/" + cmp.Or(o.Version, "dev"), Now: time.Now})
	defer w.caller.Close()
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() { checkStore(ctx, h, "kafka", admin.Ping) })
	w.tellEndpoints(nil)
	watches.Go(func() { endpoints.Watch(ctx, c.Gateway.Webhooks.Reload, w.tellEndpoints) })
	return w.run(ctx)
}

// openWebhooks is a process of webhooks whose Kafka has been reached.
type openWebhooks struct {
	config    *configs.Config
	log       *slog.Logger
	kafka     kafka.Options
	health    *health
	aside     *health // what makes nobody unready
	consumed  *kafka.Metrics
	metrics   *webhooks.Metrics
	endpoints *webhooks.Endpoints
	caller    *webhooks.Caller
}

// errNoEndpoint is the state of a sender that is told and has no endpoint.
var errNoEndpoint = errors.New("has no endpoint in gateway.webhooks.file: what it is to be told waits in Kafka")

// tellEndpoints tells of endpoints that were read again. Those of senders whom no worker
// tells anything are of no use.
func (w *openWebhooks) tellEndpoints(err error) {
	if err != nil {
		w.aside.set("gateway.webhooks.file", err)
		w.log.Error("the endpoints of webhooks are not read; the former ones stay in force", "error", err)
		return
	}
	w.aside.forget("gateway.webhooks.file")
	told, have := w.config.Gateway.Webhooks.Senders, w.endpoints.Senders()
	for _, sender := range told {
		if name := "webhooks of " + sender; slices.Contains(have, sender) {
			w.aside.forget(name)
		} else {
			w.aside.set(name, errNoEndpoint)
			w.log.Error("a sender is told of ends and has no endpoint: what it is to be told waits in Kafka", "sender", sender)
		}
	}
	for _, sender := range have {
		if !slices.Contains(told, sender) {
			w.log.Warn("a sender has an endpoint and is told nothing: it is not in gateway.webhooks.senders", "sender", sender)
		}
	}
	w.log.Info("endpoints of webhooks are in force", "endpoints", len(have))
}

// run delivers until ctx ends, for each sender as a member of a group of its own.
func (w *openWebhooks) run(ctx context.Context) error {
	placer, err := kafka.NewPlacer(w.kafka, wiring.WebhooksPlacer(w.config))
	if err != nil {
		return err
	}
	defer func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.config.Kafka.CommitTimeout)
		defer cancel()
		placer.Close(drain)
	}()
	d := webhooks.NewDeliverer(webhooks.Options{Endpoints: w.endpoints, Poster: w.caller, Dead: deadWebhooks{placer}, Keep: w.config.Gateway.Webhooks.Keep, Metrics: w.metrics, Log: w.log})
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, sender := range w.config.Gateway.Webhooks.Senders {
		o := wiring.WebhooksTasks(w.config, sender)
		o.Metrics, o.Log, o.Health = w.consumed, w.log, w.partitionHealth
		o.Failed = func(t *kafka.Task, err error) {
			w.metrics.Failed(sender)
			w.log.Warn("a webhook is to be delivered again", "sender", sender, "partition", t.Partition, "offset", t.Offset, "error", err)
		}
		tasks, err := kafka.NewTasks(w.kafka, o)
		if err != nil {
			return err
		}
		running.Go(func() {
			tasks.Run(ctx, func(ctx context.Context, t *kafka.Task) error {
				return d.Deliver(ctx, &webhooks.Event{Sender: sender, Key: t.Key, Value: t.Value, At: t.Timestamp, Leaving: t.Leaving})
			})
		})
	}
	w.log.Info("senders are told of ends", "senders", len(w.config.Gateway.Webhooks.Senders))
	<-ctx.Done()
	return ctx.Err()
}

// partitionHealth names a partition that cannot go on.
func (w *openWebhooks) partitionHealth(p push.Partition, err error) {
	name := fmt.Sprintf("partition %s/%d", p.Topic, p.ID)
	if err == nil {
		w.health.forget(name)
		return
	}
	w.health.set(name, err)
}

// deadWebhooks keeps dead letters in their topic.
type deadWebhooks struct{ placer *kafka.Placer }

// Bury implements webhooks.Dead.
func (d deadWebhooks) Bury(ctx context.Context, e *webhooks.Event, why webhooks.Reason, detail string) error {
	buried := make(chan error, 1)
	letter := kafka.DeadWebhook{Sender: e.Sender, Reason: string(why), Detail: detail, Made: e.At, Key: e.Key, Value: e.Value}
	d.placer.Place(letter.Placed(), func(err error) { buried <- err })
	select {
	case err := <-buried:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
