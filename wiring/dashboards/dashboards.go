// Package dashboards makes the dashboard of a configured fleet: the page that `pushctl
// dashboard` and `pushgateway dashboard` serve, and the feed that `pushctl top` prints.
package dashboards

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/dlq"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/lookup"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// NewReader reads what the lanes of the configuration do. It connects to nothing yet.
func NewReader(c *configs.Config, s *reach.Servers, log *slog.Logger) (*dashboard.Reader, error) {
	o, err := s.KafkaOptions()
	if err != nil {
		return nil, err
	}
	return &dashboard.Reader{Feed: dashboard.NewFeed(), Kafka: o, Topics: topics(c), Fanouts: c.Gateway.Fanout.Enabled, Log: log}, nil
}

// Needs are the topics without which a Reader shows nothing.
func Needs(c *configs.Config) []string {
	if c.Gateway.Fanout.Enabled {
		return []string{kafka.EventsTopic, fanout.JobsTopic}
	}
	return []string{kafka.EventsTopic}
}

// topics are the topics of all lanes, each lane's own one first.
func topics(c *configs.Config) (list []dashboard.LaneTopic) {
	for _, l := range c.Lanes {
		list = append(list, dashboard.LaneTopic{Lane: l.Name, Kind: dashboard.TopicMain, Topic: l.Topic, Group: c.Kafka.LaneGroup(l.Name)})
		for _, t := range wiring.RetryTopics(c, l) {
			kind := dashboard.TopicRetry
			if t.Kind == kafka.Hold {
				kind = dashboard.TopicHold
			}
			list = append(list, dashboard.LaneTopic{Lane: l.Name, Kind: kind, Topic: t.Name, Group: c.Kafka.RetryGroup(l.Name)})
		}
		list = append(list, dashboard.LaneTopic{Lane: l.Name, Kind: dashboard.TopicDLQ, Topic: kafka.DLQTopic(l.Topic)})
	}
	return list
}

// Beside runs something while the reader reads, and returns its error, or that of the reader,
// which ends it.
func Beside(ctx context.Context, reader *dashboard.Reader, run func(context.Context) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stop(nil)
	reading.Go(func() {
		if err := reader.Run(ctx); err != nil {
			stop(err)
		}
	})
	err := run(ctx)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// Page is a fleet's page before it is served. All fields are required, but for TLS.
type Page struct {
	Config   *configs.Config
	Servers  *reach.Servers // they stay the caller's
	Reader   *dashboard.Reader
	Access   *dashboard.Access
	Listener net.Listener // closed at the end
	TLS      *tls.Config  // nil = without
	Log      *slog.Logger
}

// Serve shows the page until ctx ends. The error is ctx's then.
func (p *Page) Serve(ctx context.Context) error {
	defer p.Listener.Close() // it is closed by then, unless there was an error before
	cluster, err := p.Servers.Cluster()
	if err != nil {
		return err
	}
	lookups := lookup.New(p.Config, p.Servers)
	defer lookups.Close()
	o := dashboard.Options{Feed: p.Reader.Feed, Lookups: answers{lookups}, Letters: dlq.New(wiring.DeadLetters(p.Config), cluster), Access: p.Access, Log: p.Log}
	if p.Reader.Fanouts {
		o.Fanouts = fanouts{p.Servers}
	}
	site, err := dashboard.NewSite(o)
	if err != nil {
		return err
	}
	return Beside(ctx, p.Reader, func(ctx context.Context) error {
		if err := site.Serve(ctx, p.Listener, p.TLS); err != nil {
			return err
		}
		return ctx.Err()
	})
}
