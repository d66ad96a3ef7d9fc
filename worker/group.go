package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/feedback"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/rates"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/traces"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/watch"
	"github.com/pushfleet/pushfleet/wiring"
)

// Run runs one worker: it connects, works on all lanes until ctx ends, drains,
// commits and leaves the groups. It waits for a store that is away, and names it in
// the log and in /readyz. It returns the error of ctx only if ctx ended before
// everything was open.
func Run(ctx context.Context, o Options) error {
	g, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer g.close()
	defer context.AfterFunc(ctx, func() { o.Log.Info("draining: a second signal ends at once", "budget", o.Config.Send.Drain) })()
	if err := g.run(ctx); err != nil {
		return err
	}
	o.Log.Info("drained")
	return nil
}

// group is everything that one worker owns. opened lists what it has opened; its
// goroutines begin and end in run.
type group struct {
	Options
	health   *health
	kafka    kafka.Options
	redis    shards.Client
	status   Status
	devices  *limits.DeviceLog // where rules of devices count; nil = in Redis
	inboxes  Inboxes           // nil = no lane keeps messages
	journals Journals          // nil = no lane notes whose they are
	routes   routes
	// credentials are what is read from files again; never nil once opened.
	credentials            *credentials
	redisTLS, cassandraTLS func() *tls.Config // nil = plain text
	shared                 *collaborators
	lanes                  []*lane
	opened                 []func() // closes what was opened, in the order of opening
}

// open opens everything in the order of the parts' dependencies, and joins no group
// yet. If a part fails, those opened before it are closed.
func open(ctx context.Context, o Options) (*group, error) {
	g := &group{Options: o, health: newHealth("kafka", "redis", "cassandra", "lanes")}
	for _, part := range []func(context.Context) error{g.openAdmin, g.openRoutes, g.openCertificates, g.openCredentials, g.openStores, g.openShared, g.openTraces, g.openLanes} {
		if err := part(ctx); err != nil {
			g.close()
			return nil, err
		}
	}
	return g, nil
}

// close closes what was opened, in reverse order.
func (g *group) close() {
	for _, c := range slices.Backward(g.opened) {
		c()
	}
	g.opened = nil
}

// openAdmin serves metrics and health. It comes first, before the worker waits for
// anything.
func (g *group) openAdmin(context.Context) (err error) {
	c := g.Config
	if g.kafka, err = wiring.Kafka(c, g.Log); err != nil {
		return err
	}
	g.kafka.Dial = g.Dial
	g.health.tellInsecure(c, g.Log)
	stop, err := startAdmin("admin.listen", c.Admin.Listen, c.Admin.PProf, g.Log, g.Metrics, g.health)
	if err != nil {
		return err
	}
	g.opened = append(g.opened, stop)
	for _, n := range c.ShortMemory() {
		g.Log.Info("the dedupe filters remember less than a lane's greatest age", "key", n.Path, "what", n.Message)
	}
	g.Log.Info("starting", "version", g.Version, "memory_bound_mib", int64(c.MemoryBound().Total())>>20, "lanes", len(c.Lanes), "apps", len(c.Apps))
	return nil
}

func (g *group) openRoutes(context.Context) (err error) {
	g.credentials = newCredentials(g.Log, g.Metrics)
	if g.routes, err = openRoutes(g.Config, g.Log, g.credentials); err != nil {
		return err
	}
	g.opened = append(g.opened, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := g.routes.close(ctx); err != nil {
			g.Log.Warn("cannot close providers", "error", err)
		}
	})
	g.health.tell(func() []string { return g.routes.lines(time.Now()) })
	if err := g.Metrics.Register(refusals{g.routes}); err != nil {
		return err
	}
	return g.Metrics.Register(poolMetrics{g.routes})
}

// openCertificates has the certificates of the stores looked at too.
func (g *group) openCertificates(context.Context) (err error) {
	c := g.Config
	for _, section := range []struct {
		name string
		tls  *configs.TLS
		to   *func() *tls.Config
	}{{"kafka.tls", &c.Kafka.TLS, &g.kafka.CurrentTLS}, {"redis.tls", &c.Redis.TLS, &g.redisTLS}, {"cassandra.tls", &c.Cassandra.TLS, &g.cassandraTLS}} {
		if !section.tls.Enabled {
			continue
		}
		if *section.to, err = g.credentials.tls(section.name, nil, section.tls.Files(), section.tls.Config); err != nil {
			return fmt.Errorf("%s: %w", section.name, err)
		}
	}
	return nil
}

// collaborators are shared by all lanes.
type collaborators struct {
	filter    *dedupe.Filter
	rules     *rules
	users     *users.Reader
	latest    *collapse.Latest
	checks    *stages.LimitMetrics
	segmented *segmented // nil = there are no segments
	kafka     *kafka.Metrics
	pipeline  *pipeline.Metrics
	gates     *gates.Gates
	rates     *rates.Rates
	turns     *turns          // nil = the fleet has no limit
	tracer    pipeline.Tracer // nil = no traces
	events    *events.Collector
	watch     *watch.Metrics
	told      *pauses.Store
	tokens    *feedback.AppGuard
}

func (g *group) openShared(ctx context.Context) error {
	filter, err := dedupe.New(g.redis, wiring.Filter(g.Config))
	if err != nil {
		return err
	}
	reader := users.NewReader(g.redis, false)
	rules, err := newRules(g.Config, g.redis, g.devices, reader.ReadLimiter, g.Log, g.Metrics, time.Now())
	if err != nil {
		return err
	}
	segmented, err := g.openSegments(ctx, func(set *segments.Set) error { return missing(set, *rules.list.Load()) })
	if err != nil {
		return err
	}
	if segmented != nil {
		rules.fits = segmented.fits
	}
	latest, err := collapse.New(g.redis, wiring.Latest(g.Config))
	if err != nil {
		return err
	}
	told, err := pauses.New(g.redis, wiring.Pauses(g.Config, g.Log))
	if err != nil {
		return err
	}
	tokens, err := feedback.NewAppGuard(feedback.AppOptions{Share: g.Config.Feedback.Share, Window: g.Config.Feedback.Window, Answers: g.Config.Feedback.Answers})
	if err != nil {
		return err
	}
	now := time.Now()
	g.shared = &collaborators{tokens: tokens, filter: filter, rules: rules, segmented: segmented, latest: latest, checks: stages.NewLimitMetrics(g.Metrics), told: told, users: reader,
		kafka: kafka.NewMetrics(g.Metrics), pipeline: pipeline.NewMetrics(g.Metrics, providerWords()...), events: events.New(rand.Text(), now), watch: watch.NewMetrics(g.Metrics)}
	options := wiring.Gates(g.Config)
	options.Quarantined = g.tellQuarantine
	if options.Rates, err = g.openRates(); err != nil {
		return err
	}
	g.shared.gates, err = gates.New(slices.Collect(maps.Keys(g.routes)), options, g.shared.pipeline.Gates, g.Log, now)
	if err != nil {
		return err
	}
	g.credentials.gates.Store(g.shared.gates)
	g.shared.gates.Recall(ctx, told)
	return nil
}

// openTraces makes the tracer, if there is a collector.
func (g *group) openTraces(ctx context.Context) error {
	c := g.Config.Traces
	if c.Endpoint == "" {
		return nil
	}
	t, err := traces.New(ctx, traces.Options{Endpoint: c.Endpoint, Ratio: c.Ratio, Worker: memberName(g.Config), Version: g.Version, Log: g.Log})
	if err != nil {
		return err
	}
	g.opened = append(g.opened, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := t.Close(ctx); err != nil {
			g.Log.Warn("the last traces are lost", "error", err)
		}
	})
	g.shared.tracer = t
	return nil
}

// openRates makes the rates of the routes whose provider counts what is sent.
func (g *group) openRates() (map[push.Route]gates.Rate, error) {
	o := wiring.Rates(g.Config, g.Log)
	o.Member, o.Metrics, o.Tell = rand.Text(), rates.NewMetrics(g.Metrics), g.tellRate
	var err error
	if g.shared.rates, err = rates.New(g.redis, wiring.Counted(g.Config), o); err != nil {
		return nil, err
	}
	if limit := g.shared.rates.Limit(); limit != nil {
		g.shared.turns = &turns{lanes: len(g.Config.Lanes), limit: limit, log: g.Log}
	}
	byRoute := make(map[push.Route]gates.Rate)
	for r := range g.routes {
		if rate := g.shared.rates.Of(r); rate != nil {
			byRoute[r] = rate
			if c, is := g.routes[r].(announcing); is {
				c.Announced(rate.Announced)
			}
		}
	}
	return byRoute, nil
}

// openLanes opens both halves of every lane.
func (g *group) openLanes(context.Context) error {
	for i := range g.Config.Lanes {
		for _, retry := range []bool{false, true} {
			l, err := g.openLane(i, retry)
			if err != nil {
				return fmt.Errorf("lane %s: %w", g.Config.Lanes[i].Name, err)
			}
			g.opened = append(g.opened, l.close)
			g.lanes = append(g.lanes, l)
		}
	}
	return nil
}

// run joins the groups and works on all lanes until ctx ends, then drains, commits
// and leaves. A lane whose source fails stops the others too. The lanes end first,
// each with its source; after them end the parts that they need to the last:
// pauses, events and the watchdog.
func (g *group) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, l := range g.lanes {
		l.source.Join()
	}
	g.health.set("lanes", nil)
	defer g.health.set("lanes", errors.New("draining"))

	var running sync.WaitGroup
	errs := make([]error, len(g.lanes))
	for i, l := range g.lanes {
		running.Go(func() {
			defer stop()
			errs[i] = l.run(ctx)
		})
	}
	running.Go(func() { keepFilters(ctx, g.Log, g.Metrics, g.shared.filter) })
	running.Go(func() { g.watchStores(ctx) })
	working, done := context.WithCancel(context.WithoutCancel(ctx)) // until the lanes have drained
	var beside sync.WaitGroup
	for _, part := range g.beside() {
		beside.Go(func() { part(working) })
	}
	running.Wait()
	done()
	beside.Wait()
	return errors.Join(errs...)
}

// beside returns the parts that run beside the lanes until these have drained.
func (g *group) beside() []func(context.Context) {
	parts := []func(context.Context){
		func(ctx context.Context) { g.shared.gates.Share(ctx, g.shared.told) },
		g.shared.rates.Run,
		func(ctx context.Context) { g.tellEvents(ctx, g.shared.events, g.lanes[0].producer) },
	}
	if g.Config.Events.State {
		parts = append(parts, func(ctx context.Context) { g.tellState(ctx, g.shared.events, g.lanes[0].producer) })
	}
	if s := g.shared.segmented; s != nil {
		parts = append(parts, func(ctx context.Context) { _ = s.watcher.Run(ctx) }) // it returns nil
	}
	if g.Reload != nil {
		parts = append(parts, func(ctx context.Context) { g.shared.rules.follow(ctx, cmp.Or(g.ReloadEvery, rulesRound), g.Reload) })
	}
	if g.shared.turns != nil {
		parts = append(parts, func(ctx context.Context) { g.shared.turns.judge(ctx, g.loads) })
	}
	for _, l := range g.lanes {
		parts = append(parts, func(ctx context.Context) { g.watchProgress(ctx, l, g.shared.watch) })
	}
	return parts
}
