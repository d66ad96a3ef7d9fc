package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/wiring"
)

// FanoutOptions are the options of a process of fan-outs. Config must be valid and pass
// CheckFanout; Config, Log and Metrics are required.
type FanoutOptions struct {
	Config  *configs.Config
	Log     *slog.Logger
	Metrics *prometheus.Registry
	// Dial is as that of Options, to Kafka, and to Redis where senders have limits of receivers.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// OpenStores replaces opening Cassandra; nil = Cassandra.
	OpenStores func(ctx context.Context) (FanoutStores, error)
}

// FanoutStores is what a process of fan-outs keeps and reads.
type FanoutStores struct {
	Notes    fanout.Notes
	Audience fanout.Audience
	Inboxes  fanout.Inboxes              // nil = nothing is kept for subscribers who pull
	Ping     func(context.Context) error // whether they can be reached
	Close    func()
}

// RunFanout makes messages for many receivers into records of lanes until ctx ends. Then
// it gives back what it has begun, and returns.
func RunFanout(ctx context.Context, o FanoutOptions) error {
	c, log := o.Config, o.Log
	h := newHealth("kafka", "cassandra")
	options, err := wiring.Kafka(c, log)
	if err != nil {
		return err
	}
	options.Dial = o.Dial
	open, err := o.stores()
	if err != nil {
		return err
	}
	tokens, err := clickTokens(c)
	if err != nil {
		return err
	}
	h.tellInsecure(c, log)
	stopAdmin, err := startAdmin("gateway.fanout.admin_listen", c.Gateway.Fanout.AdminListen, c.Admin.PProf, log, o.Metrics, h)
	if err != nil {
		return err
	}
	defer stopAdmin()
	admin, err := kafka.NewAdmin(options)
	if err != nil {
		return err
	}
	defer admin.Close()
	var stores FanoutStores
	err = connectAll(
		func() error {
			return connect(ctx, log, h, "kafka", strings.Join(c.Kafka.Brokers, ","), func(ctx context.Context) error {
				return limited(ctx, c.Kafka.CommitTimeout, func(ctx context.Context) error { return admin.CheckTopics(ctx, fanoutTopics(c)...) })
			})
		},
		func() error {
			return connect(ctx, log, h, "cassandra", strings.Join(c.Cassandra.Hosts, ","), func(ctx context.Context) error {
				return limited(ctx, 4*c.Cassandra.Timeout, func(ctx context.Context) (err error) {
					stores, err = open(ctx)
					return err
				})
			})
		},
	)
	if err != nil {
		if stores.Close != nil {
			stores.Close()
		}
		return err
	}
	defer stores.Close()
	f := &openFanout{config: c, log: log, kafka: options, health: h, stores: stores, lag: laneLag{admin, c}, tokens: tokens,
		metrics: fanout.NewMetrics(o.Metrics), consumed: kafka.NewMetrics(o.Metrics)}
	redis, err := o.openRedis()
	if err != nil {
		return err
	}
	if redis != nil {
		defer func() { _ = redis.Close() }()
	}
	if c.Gateway.Limits.AnyRecipients() {
		f.quota = wiring.Recipients(c, redis)
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	ctx, leave := context.WithCancel(ctx)
	defer leave() // they end with this process also where it cannot begin
	if sendsToSegments(c) {
		watcher, done, err := openSegments(ctx, &c.Segments, h, o.Metrics, segments.WatcherOptions{Log: log})
		if done != nil {
			defer done()
		}
		if err != nil {
			return err
		}
		f.stores.Audience = WithSegments(stores.Audience, watcher.Set, users.NewReader(redis, false))
		watches.Go(func() { _ = watcher.Run(ctx) })
	}
	watches.Go(func() { checkStore(ctx, h, "kafka", admin.Ping) })
	watches.Go(func() { checkStore(ctx, h, "cassandra", stores.Ping) })
	if redis != nil {
		watches.Go(func() {
			checkStore(ctx, h, "redis", func(ctx context.Context) error { return shards.Ping(ctx, redis) })
		})
	}
	return f.run(ctx)
}

// clickTokens are what signs tokens of clicks; nil = messages have none.
func clickTokens(c *configs.Config) (fanout.Tokens, error) {
	if !c.Gateway.Clicks.Enabled {
		return nil, nil
	}
	s, err := wiring.Signer(c)
	if err != nil {
		return nil, &ConfigError{"gateway.receipts_file", err}
	}
	return s, nil
}

// openRedis makes the client of Redis that limits of receivers and segments need; nil =
// there are none. It connects to nothing yet: while Redis is away, messages to topics of
// senders without a limit go on.
func (o *FanoutOptions) openRedis() (shards.Client, error) {
	if !o.Config.Gateway.Limits.AnyRecipients() && !sendsToSegments(o.Config) {
		return nil, nil
	}
	options, err := wiring.Redis(o.Config)
	if err != nil {
		return nil, err
	}
	options.Dialer = o.Dial
	return shards.Open(options)
}

// fanoutTopics are the topics that a process of fan-outs cannot do without.
func fanoutTopics(c *configs.Config) []string {
	var topics []string
	for _, s := range wiring.FanoutTopics(c) {
		topics = append(topics, s.Name)
	}
	for _, l := range c.Lanes {
		topics = append(topics, l.Topic)
	}
	return topics
}

// stores is what opens the stores.
func (o *FanoutOptions) stores() (func(context.Context) (FanoutStores, error), error) {
	if o.OpenStores != nil {
		return o.OpenStores, nil
	}
	so, err := wiring.Cassandra(o.Config, o.Metrics, o.Log)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (FanoutStores, error) {
		session, err := status.OpenSession(ctx, so)
		if err != nil {
			return FanoutStores{}, err
		}
		notes, subscribed := fanout.NewTableNotes(session), subscriptions.New(subscriptions.Options{Tables: session})
		err = errors.Join(notes.Check(ctx), subscribed.Check(ctx))
		kinds := kindsOfAudiences{fanout.OfTopic: TopicAudience(subscribed)}
		if o.Config.Gateway.Audiences {
			users := audiences.New(audiences.Options{Tables: session})
			err = errors.Join(err, users.Check(ctx))
			kinds[fanout.OfApp] = AppAudience(users)
		}
		stores := FanoutStores{Notes: notes, Audience: kinds, Ping: notes.Check, Close: session.Close}
		if o.Config.Gateway.Inbox {
			kept := inbox.New(wiring.InboxOptions(o.Config, session))
			err = errors.Join(err, kept.CheckTopics(ctx))
			stores.Inboxes = TopicInboxes(subscribed, kept)
		}
		if err != nil {
			session.Close()
			return FanoutStores{}, fmt.Errorf("%w (pushctl schema apply)", err)
		}
		return stores, nil
	}, nil
}

// openFanout is a process of fan-outs whose servers have been reached.
type openFanout struct {
	config   *configs.Config
	log      *slog.Logger
	kafka    kafka.Options
	health   *health
	stores   FanoutStores
	lag      fanout.Lag
	quota    fanout.Quota  // nil = no sender has a limit of receivers
	tokens   fanout.Tokens // nil = it signs none
	metrics  *fanout.Metrics
	consumed *kafka.Metrics
}

// stage is the work on one topic's records.
type stage struct {
	topic string
	do    func(context.Context, *fanout.Work) error
}

// stages are the work on all topics.
func (f *openFanout) stages(p fanout.Producer) []stage {
	limits := wiring.FanoutLimits(f.config)
	x := &fanout.Expander{Producer: p, Notes: f.stores.Notes, Inboxes: f.stores.Inboxes, Open: limits.Open, Metrics: f.metrics, Log: f.log}
	all := []stage{{fanout.JobsTopic, x.Do}}
	h := &fanout.Holder{Producer: p, Notes: f.stores.Notes, Metrics: f.metrics, Log: f.log}
	for _, l := range f.config.Lanes {
		e := fanout.NewEmitter(l.Name, fanout.Options{Audience: f.stores.Audience, Producer: p, Notes: f.stores.Notes, Lag: f.lag, Quota: f.quota, Tokens: f.tokens, Limits: limits, Metrics: f.metrics, Log: f.log})
		all = append(all, stage{fanout.ChunksTopic(l.Name), e.Do}, stage{fanout.HoldTopic(l.Name), h.Do})
	}
	return all
}

// run works on all topics until ctx ends, each as a member of a group of its own.
func (f *openFanout) run(ctx context.Context) error {
	placer, err := kafka.NewPlacer(f.kafka, wiring.FanoutPlacer(f.config))
	if err != nil {
		return err
	}
	defer func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.config.Kafka.CommitTimeout)
		defer cancel()
		placer.Close(drain)
	}()
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, s := range f.stages(placerProducer{placer}) {
		o := wiring.FanoutTasks(f.config, s.topic)
		o.Metrics, o.Log, o.Health, o.Failed = f.consumed, f.log, f.partitionHealth, f.failed
		tasks, err := kafka.NewTasks(f.kafka, o)
		if err != nil {
			return err
		}
		running.Go(func() {
			tasks.Run(ctx, func(ctx context.Context, t *kafka.Task) error {
				return s.do(ctx, &fanout.Work{Topic: t.Topic, Key: t.Key, Value: t.Value, Leaving: t.Leaving, At: t.Timestamp})
			})
		})
	}
	f.log.Info("fan-outs are worked on", "lanes", len(f.config.Lanes))
	<-ctx.Done()
	return ctx.Err()
}

// failed tells of work that is repeated.
func (f *openFanout) failed(t *kafka.Task, err error) {
	f.metrics.Failed(t.Topic)
	f.log.Warn("the work on a record of a fan-out failed and is repeated", "topic", t.Topic, "partition", t.Partition, "offset", t.Offset, "error", err)
}

// partitionHealth names a partition that cannot go on.
func (f *openFanout) partitionHealth(p push.Partition, err error) {
	name := fmt.Sprintf("partition %s/%d", p.Topic, p.ID)
	if err == nil {
		f.health.forget(name)
		return
	}
	f.health.set(name, err)
}

// placerProducer is a Placer as fan-outs need it.
type placerProducer struct{ placer *kafka.Placer }

// Produce implements fanout.Producer.
func (p placerProducer) Produce(records []fanout.Record, done func(error)) {
	for i := range records {
		r := &records[i]
		placed := kafka.Placed{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: headersOf(r.Traceparent, r.Admitted), At: r.At}
		p.placer.Place(&placed, done)
	}
}

// laneLag is how far the workers of lanes are behind.
type laneLag struct {
	admin  *kafka.Admin
	config *configs.Config
}

// Lag implements fanout.Lag, by the lane's own topic.
func (g laneLag) Lag(ctx context.Context, lane string) (b fanout.Backlog, err error) {
	l := g.config.Lane(lane)
	if l == nil {
		return b, fmt.Errorf("there is no lane %s", lane)
	}
	err = limited(ctx, g.config.Kafka.CommitTimeout, func(ctx context.Context) (err error) {
		b, err = backlogOf(ctx, g.admin, g.config.Kafka.LaneGroup(lane), l.Topic)
		return err
	})
	return b, err
}

// backlogOf is how far a group is in each partition of a topic. Before its first commit all that is there
// counts as not committed; what is not there any more does not.
func backlogOf(ctx context.Context, admin *kafka.Admin, group, topic string) (fanout.Backlog, error) {
	p, err := admin.Progress(ctx, group, topic)
	if err != nil {
		return nil, err
	}
	starts, err := admin.StartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.EndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	b := make(fanout.Backlog, len(ends))
	for partition, end := range ends {
		at := max(p.Committed[partition], starts[partition])
		b[partition] = fanout.Standing{Behind: max(0, end-at), Passed: at}
	}
	return b, nil
}

// Subscribers reads who has subscribed to a topic, as subscriptions.Store does.
type Subscribers interface {
	Run(ctx context.Context, topic string, l subscriptions.Layout, first, last int, after subscriptions.Position, limit int) (list []subscriptions.Subscription, next subscriptions.Position, end bool, err error)
}

// TopicAudience is the subscribers of topics, and no other audience.
func TopicAudience(s Subscribers) fanout.Audience { return topicAudience{s} }

type topicAudience struct{ subscribers Subscribers }

// Page implements fanout.Audience.
func (a topicAudience) Page(ctx context.Context, j *fanout.Job, part int, after string, limit int) ([]fanout.Member, error) {
	first, end := j.To.Slices(part)
	at := subscriptions.Position{Slice: first}
	if after != "" {
		at = subscriptions.Position{Slice: fanout.SliceOf(after), User: after}
	}
	layout := subscriptions.Layout{Number: j.To.Layout, Buckets: j.To.Buckets}
	for {
		list, next, over, err := a.subscribers.Run(ctx, j.To.Name, layout, first, end-1, at, min(limit, subscriptions.MaxPage))
		if err != nil {
			return nil, err
		}
		if len(list) == 0 && !over { // only so many partitions are looked into at once
			at = next
			continue
		}
		members := make([]fanout.Member, len(list))
		for i := range list {
			s := &list[i]
			members[i] = fanout.Member{User: s.User, Pull: s.Mode == subscriptions.Pull, Left: s.Mode == subscriptions.Left, Since: s.Since, Priority: s.Priority}
		}
		return members, nil
	}
}
