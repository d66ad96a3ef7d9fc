package worker

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/providers/h2"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/wiring"
)

// lane is one half of a lane: its own topic, or its retry, deferral and hold topics.
type lane struct {
	name     string
	log      *slog.Logger
	source   *kafka.Source
	producer *kafka.Producer
	pipeline *pipeline.Pipeline
	teller   *events.Teller
	pace     *pace // nil = it sheds nothing
}

// onceBatch is the most records per partition that are between their intents and
// their results: what a hard kill can leave UNKNOWN.
const onceBatch = 500

// openLane makes the pipeline of the lane's own topic, or of its retry,
// deferral and hold topics. The source joins no group yet.
func (g *group) openLane(i int, retry bool) (*lane, error) {
	c, l, shared := g.Config, g.Config.Lanes[i], g.shared
	name, topics, group := l.Name, wiring.MainTopics(l), c.Kafka.LaneGroup(l.Name)
	if retry {
		name, topics, group = l.Name+".retry", wiring.RetryTopics(c, l), c.Kafka.RetryGroup(l.Name)
	}
	batch, reread := c.Batch.Records, 0
	if l.Once() {
		batch = min(batch, onceBatch)
		reread = batch
	}
	producer, err := kafka.NewProducer(g.kafka, kafka.ProducerOptions{Topic: l.Topic, Tiers: wiring.Tiers(c), DeferTiers: wiring.DeferTiers(c), Metrics: shared.kafka})
	if err != nil {
		return nil, err
	}
	sheds := l.Shed.Enabled && !retry
	var look time.Duration // as usual
	if sheds {
		look = time.Second
	}
	teller := shared.events.Teller(name, produceRanges(name, producer))
	source, err := kafka.NewSource(g.kafka, kafka.SourceOptions{
		Topics: topics, Group: group, Metrics: shared.kafka, Admitted: c.Gateway.Limits.Any() || c.Gateway.Limits.AnyRecipients(),
		BatchRecords: batch, BatchBytes: int(c.Batch.Bytes), Linger: c.Batch.Linger,
		OpenBatches: c.Batch.OpenPerPartition, OpenRecords: c.Batch.OpenRecords,
		Confirms: c.Batch.Window(), Reread: reread,
		Protocol: c.Kafka.Protocol, Balancer: c.Kafka.Balancer, JoinWithin: c.Kafka.JoinWithin,
		Session: c.Kafka.SessionTimeout, Rebalance: c.Kafka.RebalanceTimeout, Drain: c.Send.Drain, Commit: c.Kafka.CommitTimeout,
		Yields: shared.turns.yields(i),
		Look:   look, Expiries: sheds, Health: g.partitionHealth,
		Tell: func(ctx context.Context, ranges []pipeline.Range) { teller.Tell(ctx, ranges, time.Now()) },
	})
	if err != nil {
		producer.Close()
		return nil, err
	}
	opened := &lane{name: name, log: g.Log, source: source, producer: producer, teller: teller}
	if sheds {
		opened.pace = &pace{source: source, depth: shared.pipeline.Sheds(name)}
	}
	o := pipeline.Options{
		Lane: name, Source: source, Stages: g.stages(l, opened, retry), Routes: g.routes.lane(i), Producer: producer, Status: statusOf(&l, g.status), Ledger: g.status, Seen: shared.filter,
		Gates: shared.gates, Urgent: i == 0, EarliestFirst: sheds, Events: shared.events, Latest: shared.latest, Tracer: shared.tracer,
		Policy: wiring.Policy(c, l), Once: l.Once(),
		Recheck: &stages.Recheck{Users: shared.users, Newest: shared.latest, Rules: g.preferences(l)}, RecheckAfter: c.Send.Recheck,
		StageWorkers: c.Batch.Workers, StageRecords: stageRecords(c), Window: c.Send.InFlight + c.Status.Unacknowledged,
		SendDeadline: c.Send.Deadline, StatusTimeout: c.Cassandra.Timeout, Drain: c.Send.Drain - configs.LeaveTimeout, CommitTimeout: c.Kafka.CommitTimeout, CommitInterval: c.Kafka.CommitInterval,
		Tokens: shared.tokens, Metrics: shared.pipeline, Log: g.Log, Observe: g.Observe,
	}
	if shared.turns != nil {
		o.Limit = shared.turns.limit.Lane(i)
	}
	if told := c.Gateway.Webhooks.Senders; len(told) > 0 {
		o.Ends = events.NewEnds(l.Name, told)
	}
	if g.Wrap != nil {
		o = g.Wrap(o, func(r push.Route) h2.Stats {
			s, _ := g.routes.stats(r)
			return s
		})
	}
	if opened.pipeline, err = pipeline.New(o); err != nil {
		opened.close()
		return nil, err
	}
	if opened.pace != nil {
		opened.pace.pipeline = opened.pipeline
	}
	return opened, nil
}

// partitionHealth names a partition in /readyz while it is in trouble here.
func (g *group) partitionHealth(p push.Partition, err error) {
	name := fmt.Sprintf("%s/%d", p.Topic, p.ID)
	if err == nil {
		g.health.forget(name)
		return
	}
	g.health.set(name, err)
}

// stages returns the stages that a batch goes through before it is sent.
func (g *group) stages(l configs.Lane, half *lane, retry bool) []pipeline.Stage {
	shared := g.shared
	apps := make(map[string]bool, len(g.Config.Apps))
	for _, a := range g.Config.Apps {
		apps[a.Name] = true
	}
	var superseded *stages.Superseded
	if retry {
		superseded = &stages.Superseded{Newest: shared.latest}
	}
	var shed *stages.Shed
	if half.pace != nil {
		shed = stages.NewShed(thresholds(l.Shed), half.source, half.pace)
	}
	return stages.NewOrder(
		&stages.Dedupe{Filter: shared.filter, Ledger: g.status, ConfirmAll: l.IgnoreBlocked},
		g.journal(l, retry),
		&stages.Accept{Apps: apps, GreatestAge: l.GreatestAge, DefaultPriority: wiring.Priority(l.DefaultPriority),
			MayBeCritical: l.MayBeCritical(), Lowered: shared.pipeline.Lowered(half.name), Replace: l.Replaces()},
		shed,
		superseded,
		&stages.Preferences{Users: shared.users, Rules: g.preferences(l)},
		&stages.Devices{},
		g.inbox(l),
		g.limits(l),
	)
}

// journal is the stage that notes a lane's messages for who looks for them by user; nil = it
// notes none. What is tried again was noted at first.
func (g *group) journal(l configs.Lane, retry bool) *stages.Journal {
	if l.Journal == 0 || retry {
		return nil
	}
	return &stages.Journal{Journals: g.journals, Lane: l.Name, Kept: l.Journal}
}

// inbox is the stage that keeps a lane's messages for users who look for them; nil = it
// keeps none.
func (g *group) inbox(l configs.Lane) *stages.Inbox {
	if !l.Inbox {
		return nil
	}
	return &stages.Inbox{Inboxes: g.inboxes, Lane: l.Name, After: l.InboxAfter}
}

// preferences are what the configuration currently in force says about users'
// preferences in a lane.
func (g *group) preferences(l configs.Lane) func() stages.Rules {
	return func() stages.Rules { return g.shared.rules.preferences(l.Name) }
}

// limits is the last stage of a lane.
func (g *group) limits(l configs.Lane) *stages.Limits {
	shared := g.shared
	s := &stages.Limits{Limiter: shared.rules.limiter, Senders: shared.rules.senders, Lane: l.Name, Zone: shared.rules.zone,
		Consent: wiring.Consent(g.Config, l), Checks: shared.checks}
	if shared.segmented != nil {
		s.Segments = shared.segmented.of
	}
	return s
}

// run works until ctx ends, then drains, commits and leaves the group. Each lane
// leaves as soon as it has drained.
func (l *lane) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, l.source.Leaving)()
	var measuring sync.WaitGroup
	measured, stop := context.WithCancel(ctx)
	if l.pace != nil {
		measuring.Go(func() { l.pace.measure(measured) })
	}
	err := l.pipeline.Run(ctx)
	stop()
	measuring.Wait()
	l.leave()
	if err != nil {
		return fmt.Errorf("lane %s: %w", l.name, err)
	}
	return nil
}

// leave closes the source, which leaves the group. It may be called again.
func (l *lane) leave() {
	// The other half is for LeaveGroup itself, which Close sends after ctx too.
	ctx, cancel := context.WithTimeout(context.Background(), configs.LeaveTimeout/2)
	defer cancel()
	if err := l.source.Close(ctx); err != nil {
		l.log.Warn("cannot close the source", "lane", l.name, "error", err)
	}
}

// close closes what has not run as well as what has.
func (l *lane) close() {
	l.leave()
	l.producer.Close()
}

// stageRecords is how many records a stage works on at once: a full batch for every two
// processors. With more the rate does not grow, but memory and what urgent records wait do.
func stageRecords(c *configs.Config) int { return c.Batch.Records * max(1, runtime.GOMAXPROCS(0)/2) }
