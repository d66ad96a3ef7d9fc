package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// statusStore is the status store as the worker needs it.
type statusStore interface {
	pipeline.Status
	stages.Ledger
}

// openedStatus is a status store that is closed at the end.
type openedStatus interface {
	statusStore
	Close()
}

// worker is everything that a running worker owns. The demo makes the same one
// over in-process servers.
type worker struct {
	config  *configs.Config
	log     *slog.Logger
	metrics *prometheus.Registry
	health  *health

	kafka  kafka.Options
	redis  shards.Client
	status statusStore
	routes routes
	exit   func(code int) // os.Exit; a test's own
	// answered, if set, sees every group of answers (the demo's latencies).
	answered func([]*pipeline.Delivery)
}

// connectStores opens what the worker needs, side by side, each for as long as
// it takes: a store that is away is named in the log and in /readyz.
func (w *worker) connectStores(ctx context.Context) (closeAll func(), err error) {
	redisOptions, err := wiring.Redis(w.config)
	if err != nil {
		return nil, err
	}
	statusOptions, err := wiring.Cassandra(w.config, w.metrics, w.log)
	if err != nil {
		return nil, err
	}
	w.redis, err = shards.Open(redisOptions)
	if err != nil {
		return nil, err
	}
	admin, err := kafka.NewAdmin(w.kafka)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	var store openedStatus
	c := w.config
	err = connectAll(
		func() error {
			return connect(ctx, w.log, w.health, "kafka", strings.Join(c.Kafka.Brokers, ","), func(ctx context.Context) error {
				return limited(ctx, c.Kafka.CommitTimeout, func(ctx context.Context) error { return admin.CheckTopics(ctx, wiring.TopicNames(c)...) })
			})
		},
		func() error {
			return connect(ctx, w.log, w.health, "redis", strings.Join(c.Redis.Addresses, ","), func(ctx context.Context) error {
				return limited(ctx, 2*c.Redis.ReadTimeout, func(ctx context.Context) error { return shards.CheckServer(ctx, w.redis, true) })
			})
		},
		func() error {
			return connect(ctx, w.log, w.health, "cassandra", strings.Join(c.Cassandra.Hosts, ","), func(ctx context.Context) error {
				return limited(ctx, 2*c.Cassandra.Timeout, func(ctx context.Context) (err error) {
					store, err = openStatus(ctx, statusOptions)
					return err
				})
			})
		},
	)
	closeAll = func() {
		if store != nil {
			store.Close()
		}
		_ = w.redis.Close() // nothing is unsent: every command was waited for
	}
	if err != nil {
		closeAll()
		return nil, err
	}
	w.status = store
	return closeAll, nil
}

// limited gives one attempt its own time.
func limited(ctx context.Context, d time.Duration, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return attempt(ctx)
}

// run works on all lanes until ctx ends, then drains, commits and leaves the
// groups. A lane whose source fails stops the others too.
func (w *worker) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	filter, err := dedupe.New(w.redis, wiring.Filter(w.config))
	if err != nil {
		return err
	}
	var limiter stages.Limiter
	if rules := wiring.Rules(w.config); len(rules) > 0 {
		if limiter, err = limits.New(w.redis, rules); err != nil {
			return err
		}
	}
	latest, err := users.NewLatest(w.redis, wiring.Latest(w.config))
	if err != nil {
		return err
	}
	told, err := pauses.New(w.redis, wiring.Pauses(w.config, w.log))
	if err != nil {
		return err
	}
	now := time.Now()
	shared := &collaborators{filter: filter, limiter: limiter, latest: latest, users: users.NewReader(w.redis, limiter != nil),
		kafka: kafka.NewMetrics(w.metrics), pipeline: pipeline.NewMetrics(w.metrics, providerWords()...), events: pipeline.NewEvents(rand.Text(), now)}
	if shared.gates, err = gates.New(slices.Collect(maps.Keys(w.routes)), wiring.Gates(w.config), shared.pipeline.Gates, w.log, now); err != nil {
		return err
	}
	shared.gates.Recall(ctx, told)

	var lanes []*lane
	defer func() {
		for _, l := range lanes {
			l.producer.Close()
		}
	}()
	for i := range w.config.Lanes {
		for _, retry := range []bool{false, true} {
			l, err := w.openLane(i, retry, shared)
			if err != nil {
				return fmt.Errorf("lane %s: %w", w.config.Lanes[i].Name, err)
			}
			lanes = append(lanes, l)
		}
	}
	w.health.set("lanes", nil)
	defer w.health.set("lanes", errors.New("draining"))

	var running sync.WaitGroup
	errs := make([]error, len(lanes))
	for i, l := range lanes {
		running.Go(func() {
			defer stop()
			errs[i] = l.run(ctx)
		})
	}
	running.Go(func() { keepFilters(ctx, w.log, w.metrics, filter) })
	working, done := context.WithCancel(context.WithoutCancel(ctx)) // until the lanes have drained
	var beside sync.WaitGroup
	beside.Go(func() { shared.gates.Share(working, told) })
	beside.Go(func() { w.tellEvents(working, shared.events, lanes[0].producer) })
	for _, l := range lanes {
		beside.Go(func() { w.watchProgress(working, l, shared.pipeline) })
	}
	running.Wait()
	done()
	beside.Wait()
	return errors.Join(errs...)
}

// collaborators are shared by all lanes.
type collaborators struct {
	filter   *dedupe.Filter
	limiter  stages.Limiter
	users    *users.Reader
	latest   *users.Latest
	kafka    *kafka.Metrics
	pipeline *pipeline.Metrics
	gates    *gates.Gates
	events   *pipeline.Events
}
