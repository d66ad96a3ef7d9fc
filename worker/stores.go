package worker

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/journal"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// openStores opens what the worker needs, side by side, each for as long as it
// takes: a store that is away is named in the log and in /readyz.
func (g *group) openStores(ctx context.Context) error {
	c := g.Config
	redisOptions, err := wiring.Redis(c)
	if err != nil {
		return err
	}
	redisOptions.Dialer, redisOptions.CurrentTLS = g.Dial, g.redisTLS
	statusOptions, err := wiring.Cassandra(c, g.Metrics, g.Log)
	if err != nil {
		return err
	}
	statusOptions.CurrentTLS = g.cassandraTLS
	if g.redis, err = shards.Open(redisOptions); err != nil {
		return err
	}
	g.opened = append(g.opened, func() { _ = g.redis.Close() }) // nothing is unsent: every command was waited for
	admin, err := kafka.NewAdmin(g.kafka)
	if err != nil {
		return err
	}
	defer admin.Close()
	openStatus := g.OpenStatus
	if openStatus == nil {
		openStatus = openCassandra
	}
	var closeDevices, closeInboxes, closeJournals func()
	err = connectAll(
		func() error {
			err := connect(ctx, g.Log, g.health, "kafka", strings.Join(c.Kafka.Brokers, ","), func(ctx context.Context) error {
				return limited(ctx, c.Kafka.CommitTimeout, func(ctx context.Context) error { return admin.CheckTopics(ctx, wiring.TopicNames(c)...) })
			})
			if err == nil {
				g.checkTold(ctx, admin)
			}
			return err
		},
		func() error {
			return connect(ctx, g.Log, g.health, "redis", strings.Join(c.Redis.Addresses, ","), func(ctx context.Context) error {
				return limited(ctx, 2*c.Redis.ReadTimeout, func(ctx context.Context) error { return shards.CheckServer(ctx, g.redis, true) })
			})
		},
		func() error {
			return connect(ctx, g.Log, g.health, "cassandra", strings.Join(c.Cassandra.Hosts, ","), func(ctx context.Context) error {
				return limited(ctx, 2*c.Cassandra.Timeout, func(ctx context.Context) (err error) {
					g.status, err = openStatus(ctx, statusOptions)
					return err
				})
			})
		},
		func() error {
			done, err := g.connectDevices(ctx, statusOptions)
			closeDevices = done
			return err
		},
		func() (err error) {
			closeInboxes, err = g.connectInboxes(ctx, statusOptions)
			return err
		},
		func() (err error) {
			closeJournals, err = g.connectJournals(ctx, statusOptions)
			return err
		},
	)
	g.opened = append(g.opened, closeDevices, closeInboxes, closeJournals)
	if g.status != nil {
		g.opened = append(g.opened, g.status.Close)
	}
	return err
}

// checkTold warns of senders who cannot be told. Nobody waits for their topics: what is for
// them becomes dead letters of webhooks.
func (g *group) checkTold(ctx context.Context, admin *kafka.Admin) {
	for _, topic := range wiring.WebhooksTopics(g.Config) {
		err := limited(ctx, g.Config.Kafka.CommitTimeout, func(ctx context.Context) error { return admin.CheckTopics(ctx, topic) })
		if err != nil && ctx.Err() == nil {
			g.Log.Error("a sender cannot be told of ends: its topic is to be made, or Write granted", "topic", topic, "error", err)
		}
	}
}

// connectDevices connects to where rules of devices count, unless that is Redis.
func (g *group) connectDevices(ctx context.Context, o status.Options) (done func(), err error) {
	if !g.Config.Limits.Devices.InCassandra() {
		return func() {}, nil
	}
	err = connect(ctx, g.Log, g.health, "device limits", strings.Join(g.Config.Cassandra.Hosts, ","), func(ctx context.Context) error {
		return limited(ctx, 2*g.Config.Cassandra.Timeout, func(ctx context.Context) (err error) {
			g.devices, done, err = wiring.DeviceLog(ctx, g.Config, o)
			return err
		})
	})
	if err != nil {
		done = func() {}
	}
	return done, err
}

// connectInboxes connects to where lanes keep messages for users, if one does.
func (g *group) connectInboxes(ctx context.Context, o status.Options) (done func(), err error) {
	if !g.Config.KeepsInboxes() {
		return func() {}, nil
	}
	open := g.OpenInboxes
	if open == nil {
		open = func(ctx context.Context, o status.Options) (Inboxes, error) { return openInboxes(ctx, g.Config, o) }
	}
	err = connect(ctx, g.Log, g.health, "inbox", strings.Join(g.Config.Cassandra.Hosts, ","), func(ctx context.Context) error {
		return limited(ctx, 2*g.Config.Cassandra.Timeout, func(ctx context.Context) (err error) {
			g.inboxes, err = open(ctx, o)
			return err
		})
	})
	if err != nil {
		return func() {}, err
	}
	return g.inboxes.Close, nil
}

// ownInboxes are inboxes with a session of their own.
type ownInboxes struct {
	*inbox.Store
	close func()
}

// Close ends the session.
func (i ownInboxes) Close() { i.close() }

// openInboxes connects to Cassandra.
func openInboxes(ctx context.Context, c *configs.Config, o status.Options) (Inboxes, error) {
	store, done, err := wiring.Inbox(ctx, c, o)
	if err != nil {
		return nil, err
	}
	return ownInboxes{store, done}, nil
}

// connectJournals connects to where it is noted which messages users were meant to get, if a
// lane asks for it.
func (g *group) connectJournals(ctx context.Context, o status.Options) (done func(), err error) {
	if !g.Config.KeepsJournals() {
		return func() {}, nil
	}
	open := g.OpenJournals
	if open == nil {
		open = func(ctx context.Context, o status.Options) (Journals, error) { return openJournals(ctx, g.Config, o) }
	}
	err = connect(ctx, g.Log, g.health, "journal", strings.Join(g.Config.Cassandra.Hosts, ","), func(ctx context.Context) error {
		return limited(ctx, 2*g.Config.Cassandra.Timeout, func(ctx context.Context) (err error) {
			g.journals, err = open(ctx, o)
			return err
		})
	})
	if err != nil {
		return func() {}, err
	}
	return g.journals.Close, nil
}

// ownJournals are journals with a session of their own.
type ownJournals struct {
	*journal.Store
	close func()
}

// Close ends the session.
func (j ownJournals) Close() { j.close() }

// openJournals connects to Cassandra.
func openJournals(ctx context.Context, c *configs.Config, o status.Options) (Journals, error) {
	store, done, err := wiring.Journal(ctx, c, o)
	if err != nil {
		return nil, err
	}
	return ownJournals{store, done}, nil
}

// limited gives each attempt a time-out of its own.
func limited(ctx context.Context, d time.Duration, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return attempt(ctx)
}

// watchStores keeps the stores' state in /readyz current while the worker runs.
func (g *group) watchStores(ctx context.Context) {
	admin, err := kafka.NewAdmin(g.kafka)
	if err != nil {
		g.Log.Error("cannot watch Kafka", "error", err)
		return
	}
	defer admin.Close()
	looks := map[string]func(context.Context) error{
		"kafka": admin.Ping,
		"redis": func(ctx context.Context) error { return shards.Ping(ctx, g.redis) },
	}
	if s, ok := g.status.(interface{ Ping(context.Context) error }); ok {
		looks["cassandra"] = s.Ping
	}
	var wg sync.WaitGroup
	for name, look := range looks {
		wg.Go(func() { checkStore(ctx, g.health, name, look) })
	}
	wg.Go(func() {
		watchEvictions(ctx, g.health, g.Log, func(ctx context.Context) (map[string]int64, error, error) { return shards.Evictions(ctx, g.redis) })
	})
	wg.Wait()
}
