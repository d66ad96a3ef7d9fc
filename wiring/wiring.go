// Package wiring turns the configuration into the options of each room: what
// the worker, the registry and the operator's tool have in common. It decides
// nothing; where a value comes from configs, its meaning stands there.
package wiring

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/collapse"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dedupe"
	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/limits/senders"
	"github.com/pushfleet/pushfleet/pauses"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/rates"
	"github.com/pushfleet/pushfleet/shards"
	"github.com/pushfleet/pushfleet/status"
)

// Kafka reads the secrets it needs and returns how to reach the brokers.
func Kafka(c *configs.Config, log *slog.Logger) (kafka.Options, error) {
	k := &c.Kafka
	tlsConfig, err := k.TLS.Config()
	if err != nil {
		return kafka.Options{}, fmt.Errorf("kafka.tls: %w", err)
	}
	o := kafka.Options{Brokers: k.Brokers, TLS: tlsConfig, ClientID: k.ClientID, Log: log}
	if k.SASL.Mechanism != "" {
		password, err := k.SASL.Password()
		if err != nil {
			return kafka.Options{}, fmt.Errorf("kafka.sasl.password_file: %w", err)
		}
		o.SASL = &kafka.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.Username, Password: password.Reveal()}
	}
	return o, nil
}

// Redis reads the secrets it needs and returns how to reach Redis.
func Redis(c *configs.Config) (shards.Options, error) {
	r := &c.Redis
	tlsConfig, err := r.TLS.Config()
	if err != nil {
		return shards.Options{}, fmt.Errorf("redis.tls: %w", err)
	}
	o := shards.Options{Addrs: r.Addresses, Cluster: r.Cluster, Username: r.Username, TLS: tlsConfig,
		DialTimeout: r.DialTimeout, ReadTimeout: r.ReadTimeout, WriteTimeout: r.WriteTimeout, PoolSize: r.Pool}
	password, err := r.Password()
	if err != nil {
		return shards.Options{}, fmt.Errorf("redis.password_file: %w", err)
	}
	o.Password = password.Reveal()
	return o, nil
}

// Cassandra reads the secrets it needs and returns how to use the status store.
func Cassandra(c *configs.Config, reg prometheus.Registerer, log *slog.Logger) (status.Options, error) {
	s := &c.Cassandra
	tlsConfig, err := s.TLS.Config()
	if err != nil {
		return status.Options{}, fmt.Errorf("cassandra.tls: %w", err)
	}
	o := status.Options{Hosts: s.Hosts, Keyspace: s.Keyspace, LocalDC: s.LocalDC, Username: s.Username, TLS: tlsConfig,
		Consistency: s.Consistency, Timeout: s.Timeout, Connections: s.Connections, Concurrency: s.Concurrency,
		FlushRows: c.Status.Rows, FlushLinger: c.Status.Flush, Lingering: (2*c.Status.Unacknowledged + 4) / 5, TTL: s.TTL, PackedRows: s.PackedRows, Layouts: Layouts(c), Registry: reg, Log: log}
	password, err := s.Password()
	if err != nil {
		return status.Options{}, fmt.Errorf("cassandra.password_file: %w", err)
	}
	o.Password = password.Reveal()
	return o, nil
}

// Schema is the status store's schema as configured.
func Schema(c *configs.Config) status.SchemaOptions {
	return status.SchemaOptions{Replication: c.Cassandra.Replication, TTL: c.Cassandra.TTL}
}

// Layouts is the history of the status table's layouts.
func Layouts(c *configs.Config) status.Layouts {
	ls := make(status.Layouts, len(c.Cassandra.Layout))
	for i, l := range c.Cassandra.Layout {
		ls[i] = status.Layout{Since: l.Since, Slice: l.Slice, Shards: l.Shards}
	}
	return ls
}

// Filter is the size of the Bloom filters.
func Filter(c *configs.Config) dedupe.Options {
	o := dedupe.DefaultOptions()
	o.Window, o.Capacity, o.ErrorRate, o.AddTimeout = c.Dedupe.Window, c.Dedupe.Capacity, c.Dedupe.ErrorRate, c.Dedupe.AddTimeout
	return o
}

// Policy says what happens after a lane's answers that are not final.
func Policy(c *configs.Config, l configs.Lane) pipeline.Policy {
	return pipeline.Policy{MaxRetries: c.Retries.Max, RetryDelays: c.Retries.Tiers, DropAmbiguous: l.DropsAmbiguous()}
}

// Consent is what a lane asks for before it sends.
func Consent(c *configs.Config, l configs.Lane) push.Consent {
	return push.Consent{OptIn: setOf(c.Preferences.OptInTypes), IgnoreBlocked: l.IgnoreBlocked}
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// Quiet is the fleet's part of quiet hours.
func Quiet(c *configs.Config) (quiet.Options, error) {
	p := &c.Preferences
	o := quiet.Options{Countries: make(map[string]quiet.Country, len(c.Countries)), Promotional: setOf(p.PromotionalTypes), Drop: setOf(p.DropTypes)}
	var err error
	if o.Default, err = push.LoadZone(p.DefaultZone); err != nil {
		return quiet.Options{}, fmt.Errorf("preferences.default_zone: %w", err)
	}
	for _, from := range c.Countries {
		var country quiet.Country
		if from.Zone != "" {
			if country.Zone, err = push.LoadZone(from.Zone); err != nil {
				return quiet.Options{}, fmt.Errorf("countries: zone of %s: %w", from.Country, err)
			}
		}
		for _, h := range from.Hours { // what configs has checked
			begin, _ := push.ParseClock(h.From)
			end, _ := push.ParseClock(h.To)
			days, _ := push.ParseWeekdays(h.Days)
			country.Hours = append(country.Hours, push.QuietHours{From: begin, To: end, Days: days, Types: h.Types})
		}
		o.Countries[from.Country] = country
	}
	return o, nil
}

// Gates are the numbers of the routes' gates and budgets.
func Gates(c *configs.Config) gates.Options {
	g := &c.Gates
	o := gates.DefaultOptions()
	o.Window, o.Answers, o.Share, o.Failures = g.Window, g.Answers, g.Share, g.Failures
	o.FirstPause, o.HaltPause, o.LongestPause = g.FirstPause, g.HaltPause, g.LongestPause
	o.FirstProbes, o.FullProbes, o.ProbeTimeout, o.ProbeWait = g.FirstProbes, g.FullProbes, g.ProbeTimeout, g.ProbeWait
	o.HoldAfter, o.HoldSpan, o.Together = g.HoldAfter, g.HoldSpan, g.Together
	o.Quarantine, o.QuarantineCampaigns = c.Feedback.Quarantine, c.Feedback.QuarantineCampaigns
	o.Retries, o.DeadLetters = gates.BudgetOptions(g.Retries), gates.BudgetOptions(g.DeadLetters)
	return o
}

// Pauses is where what providers ask for is shared: by all workers of the
// consumer groups.
func Pauses(c *configs.Config, log *slog.Logger) pauses.Options {
	g := Gates(c)
	return pauses.Options{Fleet: c.Kafka.Group, Longest: g.LongestTold(), Log: log, Member: rand.Text(),
		Probes: g.FirstProbes, ProbeTimeout: g.ProbeTimeout, FirstPause: g.FirstPause, LongestPause: g.LongestPause}
}

// Rates are how answers change rates, the limit of the whole fleet, and who shares them: all workers of the consumer
// groups.
func Rates(c *configs.Config, log *slog.Logger) rates.Options {
	return rates.Options{Fleet: c.Kafka.Group, Factors: rates.Factors(c.Rates), Limit: float64(c.Send.FleetRate), Lanes: len(c.Lanes), Log: log}
}

// Counted is what Google and Apple count of the routes of all apps: Google by the minute
// (https://firebase.google.com/docs/cloud-messaging/throttling-and-quotas), Apple does not say.
// An environment of Apple's is a server of its own, so that a sandbox slows nothing else down.
func Counted(c *configs.Config) map[push.Route]rates.Counted {
	counted := make(map[push.Route]rates.Counted)
	for _, app := range c.Apps {
		if f := app.FCM; f != nil {
			counted[push.Route{Platform: push.FCM, App: app.Name}] = rates.Counted{Name: "fcm/" + f.Project, Base: float64(f.Rate), Window: time.Minute}
		}
		if a := app.APNS; a != nil {
			for _, env := range a.Environments {
				counted[push.Route{Platform: push.APNS, App: app.Name, Environment: env}] =
					rates.Counted{Name: "apns/" + a.TeamID + "/" + a.Topic + "/" + env, Base: float64(a.Rate)}
			}
		}
	}
	return counted
}

// Latest is what is remembered of collapse keys: for as long as the most
// patient lane may still send.
func Latest(c *configs.Config) collapse.Options {
	o := collapse.DefaultOptions()
	for _, l := range c.Lanes {
		o.Horizon = max(o.Horizon, l.GreatestAge)
	}
	return o
}

// Rules are the limits; none means that no limiter is needed.
func Rules(c *configs.Config) []limits.Rule {
	rules := make([]limits.Rule, len(c.Limits.Rules))
	for i := range c.Limits.Rules {
		r := &c.Limits.Rules[i]
		rules[i] = limits.Rule{
			Name: r.Name, Per: limits.Per(r.Per), Algorithm: limits.Algorithm(r.Algorithm), Max: r.Max,
			Window: r.Window, Calendar: limits.Calendar(r.Calendar), Over: limits.Over(r.Over),
			Types: r.Types, Lanes: r.Lanes, Channels: r.Channels, Apps: r.Apps, Segments: r.Segments,
			Distinct: r.Distinct, PerApp: r.PerApp, CountCritical: r.CountCritical, Personal: r.Personal,
		}
		for _, word := range r.Priorities {
			rules[i].Priorities = append(rules[i].Priorities, uint8(Priority(word)))
		}
		if len(r.SegmentMax) > 0 {
			rules[i].SegmentMax = make(map[string]int, len(r.SegmentMax))
			for _, s := range r.SegmentMax {
				rules[i].SegmentMax[s.Segment] = s.Max
			}
		}
	}
	return rules
}

// SenderRules are the limits of senders.
func SenderRules(c *configs.Config) []senders.Rule {
	rules := make([]senders.Rule, len(c.Limits.Senders))
	for i := range c.Limits.Senders {
		r := &c.Limits.Senders[i]
		rules[i] = senders.Rule{Name: r.Name, Algorithm: senders.Algorithm(r.Algorithm), Max: r.Max, Window: r.Window,
			Burst: r.Burst, Wait: r.Wait, Senders: r.Senders, Lanes: r.Lanes, Types: r.Types, Apps: r.Apps}
	}
	return rules
}

// LimitsOptions say which apps and lanes there are, in which form states are written,
// and where rules of devices count: log is from DeviceLog, nil = in the states.
func LimitsOptions(c *configs.Config, log *limits.DeviceLog) []limits.Option {
	var apps, lanes []string
	for i := range c.Apps {
		apps = append(apps, c.Apps[i].Name)
	}
	for i := range c.Lanes {
		lanes = append(lanes, c.Lanes[i].Name)
	}
	options := []limits.Option{limits.Among(apps, lanes)}
	if c.Limits.StateVersion == 2 {
		options = append(options, limits.WriteVersion2())
	}
	if log != nil {
		options = append(options, limits.CountDevicesIn(log))
	}
	return options
}

// CheckLimits finds what would keep the rules of limits from being put in force and
// what the checks of the configuration do not see, such as apps that users' states
// cannot tell apart.
func CheckLimits(c *configs.Config) error {
	rules := Rules(c)
	if len(rules) == 0 {
		return nil
	}
	var log *limits.DeviceLog
	if c.Limits.Devices.InCassandra() {
		log = limits.NewDeviceLog(nil, 1) // nobody asks it
	}
	_, err := limits.New(nil, rules, LimitsOptions(c, log)...)
	return err
}

// DeviceLog connects to where rules of devices count, in one attempt that ends with
// ctx, and looks whether all is there. It returns nil, and a done that does nothing,
// where they count in Redis. o is from Cassandra; its registry, if any, gets the log's
// metrics when all is there.
func DeviceLog(ctx context.Context, c *configs.Config, o status.Options) (log *limits.DeviceLog, done func(), err error) {
	d := &c.Limits.Devices
	if !d.InCassandra() {
		return nil, func() {}, nil
	}
	o.Consistency = d.Consistency
	session, err := status.OpenSession(ctx, o)
	if err != nil {
		return nil, nil, fmt.Errorf("limits.devices: %w", err)
	}
	log = limits.NewDeviceLog(session, d.Concurrency)
	if err := log.Check(ctx); err != nil {
		session.Close()
		return nil, nil, fmt.Errorf("limits.devices: %w (pushctl schema apply)", err)
	}
	if o.Registry != nil {
		if err := log.Measure(o.Registry); err != nil {
			session.Close()
			return nil, nil, fmt.Errorf("limits.devices: %w", err)
		}
	}
	return log, session.Close, nil
}

// Priority parses a priority name; unknown names give push.Medium.
func Priority(word string) push.Priority {
	for p := push.Bulk; p <= push.Critical; p++ {
		if p.String() == word {
			return p
		}
	}
	return push.Medium
}

// Tiers are the tiers of retries, the longest last: a tier's name is its delay as people
// write it, "30s".
func Tiers(c *configs.Config) []kafka.Tier {
	return tiersOf(append(slices.Clone(c.Retries.Tiers), c.Retries.Deferral))
}

// DeferTiers are the tiers of what is put off: those of retries, and some between them.
func DeferTiers(c *configs.Config) []kafka.Tier {
	delays := slices.Concat(c.Retries.Tiers, c.Retries.DeferTiers, []time.Duration{c.Retries.Deferral})
	slices.Sort(delays)
	return tiersOf(slices.Compact(delays))
}

func tiersOf(delays []time.Duration) []kafka.Tier {
	tiers := make([]kafka.Tier, len(delays))
	for i, d := range delays {
		tiers[i] = kafka.Tier{Name: tierName(d), Delay: d}
	}
	return tiers
}

func tierName(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	case d%time.Minute == 0:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	}
	return d.String()
}

// MainTopics is what the first of a lane's two sources reads: its own topic.
func MainTopics(l configs.Lane) []kafka.SourceTopic {
	return []kafka.SourceTopic{{Name: l.Topic, Kind: kafka.Main}}
}

// RetryTopics is what the second one reads: its retry tiers, its deferral tiers and its
// hold topics.
func RetryTopics(c *configs.Config, l configs.Lane) []kafka.SourceTopic {
	var topics []kafka.SourceTopic
	for _, t := range Tiers(c) {
		topics = append(topics, kafka.SourceTopic{Name: kafka.RetryTopic(l.Topic, t.Name), Kind: kafka.Retry, Delay: t.Delay})
	}
	for _, t := range DeferTiers(c) {
		topics = append(topics, kafka.SourceTopic{Name: kafka.DeferTopic(l.Topic, t.Name), Kind: kafka.Retry, Delay: t.Delay})
	}
	for _, name := range kafka.HoldTopics(l.Topic) {
		topics = append(topics, kafka.SourceTopic{Name: name, Kind: kafka.Hold})
	}
	return topics
}

// Topics are all topics that the configuration needs: those of the workers and
// the registry, and where it is noted what operators do with dead letters.
func Topics(c *configs.Config) []kafka.TopicSpec {
	specs := append(workerTopics(c), kafka.TopicSpec{Name: kafka.QuarantineTopic, Partitions: 1,
		Replication: int16(c.Kafka.Topics.Replication), Configs: map[string]string{"cleanup.policy": "compact"}})
	kept := map[string]string{"retention.ms": strconv.FormatInt(c.Kafka.Topics.Retention.Milliseconds(), 10)}
	for _, name := range WebhooksTopics(c) {
		specs = append(specs, kafka.TopicSpec{Name: name, Partitions: int32(min(c.Kafka.Topics.Partitions, webhooksPartitions)), Replication: int16(c.Kafka.Topics.Replication), Configs: kept})
	}
	for _, l := range c.Lanes {
		specs = append(specs, kafka.TopicSpec{Name: kafka.AuditTopic(l.Topic), Partitions: 1,
			Replication: int16(c.Kafka.Topics.Replication), Configs: map[string]string{"cleanup.policy": "compact"}})
	}
	return specs
}

// workerTopics are each lane's own, its retry and deferral tiers, hold topics and DLQ, what
// the registry follows and what dashboards read, and where ends go that a sender's topic
// does not take.
func workerTopics(c *configs.Config) []kafka.TopicSpec {
	t := c.Kafka.Topics
	spec := func(name string, configs map[string]string) kafka.TopicSpec {
		return kafka.TopicSpec{Name: name, Partitions: int32(t.Partitions), Replication: int16(t.Replication), Configs: configs}
	}
	kept := map[string]string{"retention.ms": strconv.FormatInt(t.Retention.Milliseconds(), 10)}
	var specs []kafka.TopicSpec
	for _, l := range c.Lanes {
		specs = append(specs, spec(l.Topic, kept))
		for _, t := range RetryTopics(c, l) {
			specs = append(specs, spec(t.Name, kept))
		}
		specs = append(specs, spec(kafka.DLQTopic(l.Topic), kept))
	}
	if len(c.Gateway.Webhooks.Senders) > 0 {
		dead := spec(kafka.DeadWebhooksTopic, kept)
		dead.Partitions = 1
		specs = append(specs, dead)
	}
	return append(specs, spec(kafka.FeedbackTopic, kept), spec(kafka.EventsTopic, kept),
		spec(kafka.UsersTopic, map[string]string{"cleanup.policy": "compact"}))
}

// TopicNames are the names of the topics that a worker cannot do without. Those of what
// senders are told are not among them.
func TopicNames(c *configs.Config) []string {
	var names []string
	for _, s := range workerTopics(c) {
		names = append(names, s.Name)
	}
	return names
}
