package wiring

import (
	"slices"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
)

// Role is what a process or person does in Kafka.
type Role string

// The roles, in the order of docs/operations.md.
const (
	Worker       Role = "worker"
	Registry     Role = "registry"
	HTTPGateway  Role = "gateway"   // pushgateway serve
	FanoutWorker Role = "fanout"    // pushgateway fanout
	Webhooks     Role = "webhooks"  // pushgateway webhooks
	Operator     Role = "operator"  // pushctl
	Producer     Role = "producer"  // of notifications
	Reader       Role = "reader"    // of push.events: whoever else counts what is told there
	Dashboard    Role = "dashboard" // pushgateway dashboard
	Redriver     Role = "redriver"  // what it needs besides, if keys act on dead letters there
)

// Roles are all roles, in that order.
func Roles() []Role {
	return []Role{Worker, Registry, HTTPGateway, FanoutWorker, Webhooks, Operator, Producer, Reader, Dashboard, Redriver}
}

// Right is what a role may do with one topic or consumer group. In Kafka, Read,
// Write, Alter and Delete each include Describe.
type Right struct {
	Role       Role
	Resource   string // "topic" or "group"
	Name       string
	Pattern    string   // Name, with configured parts in angle brackets
	Operations []string // as in kafka-acls.sh
}

// Rights are exactly the rights that each role needs. There are none on what is not
// configured, such as topics of fan-outs without fan-outs.
func Rights(c *configs.Config) []Right {
	var r rights
	for _, l := range c.Lanes {
		r.lane(c, l)
	}
	// A worker only checks that push.users exists. A registry also compares
	// registry.max_stale with the topic's retention of tombstones. Who erases a user
	// reads what there is of one, and a gateway the latest preferences before it
	// changes them.
	users := map[Role][]string{Worker: {"Describe"}, Registry: {"DescribeConfigs", "Read", "Write"}, HTTPGateway: {"Write"}, Operator: {"Read", "Write"}}
	if c.Gateway.Registry {
		users[HTTPGateway] = []string{"Read", "Write"}
	}
	r.topic(kafka.UsersTopic, kafka.UsersTopic, users)
	r.topic(kafka.QuarantineTopic, kafka.QuarantineTopic, map[Role][]string{Registry: {"Write"}, Operator: {"Read"}})
	r.topic(kafka.FeedbackTopic, kafka.FeedbackTopic, map[Role][]string{Worker: {"Write"}, Registry: {"Read"}})
	told := map[Role][]string{Worker: {"Write"}, Operator: {"Read"}, Reader: {"Read"}, Dashboard: {"Read"}}
	if c.Gateway.Limits.Any() {
		told[HTTPGateway] = []string{"Write"}
	}
	r.topic(kafka.EventsTopic, kafka.EventsTopic, told)
	r.grant("group", c.Registry.Group, "<registry.group>", map[Role][]string{Registry: {"Read"}})
	if c.Registry.Audiences {
		r.grant("group", c.Registry.AudiencesGroup(), "<registry.group>.audiences", map[Role][]string{Registry: {"Read"}})
	}
	if c.Gateway.Fanout.Enabled {
		r.fanouts(c)
	}
	if len(c.Gateway.Webhooks.Senders) > 0 {
		r.webhooks(c)
	}
	return r
}

// rights are what was granted so far.
type rights []Right

func (r *rights) grant(resource, name, pattern string, needs map[Role][]string) {
	for _, role := range Roles() {
		if operations := needs[role]; len(operations) > 0 {
			*r = append(*r, Right{role, resource, name, pattern, operations})
		}
	}
}

// topic grants rights on a topic. `pushctl topics ensure` creates every one, reads its
// settings and adds partitions.
func (r *rights) topic(name, pattern string, needs map[Role][]string) {
	needs[Operator] = append([]string{"Create", "Alter", "DescribeConfigs"}, needs[Operator]...)
	r.grant("topic", name, pattern, needs)
}

// lane grants those on a lane's own topics and groups. A gateway writes to lanes that have
// a service type, and compares receipts with what their workers have committed. Fan-outs
// are paced by the same offsets. A dashboard asks for the ends and the committed offsets of
// all of them, and reads dead letters; those that it sends again go to the smallest tier.
func (r *rights) lane(c *configs.Config, l configs.Lane) {
	own := map[Role][]string{Worker: {"Read"}, Operator: {"Read", "Write"}, Producer: {"Write"}, Dashboard: {"Describe"}}
	group := map[Role][]string{Worker: {"Read"}, Operator: {"Describe"}, Dashboard: {"Describe"}}
	if slices.ContainsFunc(c.ServiceLanes(), func(g configs.GatewayLane) bool { return g.Lane == l.Name }) {
		own[HTTPGateway], group[HTTPGateway] = []string{"Write"}, []string{"Describe"}
	}
	if c.Gateway.Fanout.Enabled {
		own[FanoutWorker], group[FanoutWorker] = []string{"Write"}, []string{"Describe"}
	}
	r.topic(l.Topic, "<lane>", own)
	for i, t := range Tiers(c) {
		needs := map[Role][]string{Worker: {"Read", "Write"}, Operator: {"Write"}, Dashboard: {"Describe"}}
		if i == 0 {
			needs[Redriver] = []string{"Write"}
		}
		r.topic(kafka.RetryTopic(l.Topic, t.Name), "<lane>.retry.<tier>", needs)
	}
	for _, t := range DeferTiers(c) {
		r.topic(kafka.DeferTopic(l.Topic, t.Name), "<lane>.defer.<tier>", map[Role][]string{Worker: {"Read", "Write"}, Dashboard: {"Describe"}})
	}
	for _, name := range kafka.HoldTopics(l.Topic) {
		r.topic(name, "<lane>.hold.<provider>", map[Role][]string{Worker: {"Read", "Write"}, Dashboard: {"Describe"}})
	}
	r.topic(kafka.DLQTopic(l.Topic), "<lane>.dlq", map[Role][]string{Worker: {"Write"}, Operator: {"Read", "Delete"}, Dashboard: {"Read"}})
	r.topic(kafka.AuditTopic(l.Topic), "<lane>.dlq.audit", map[Role][]string{Operator: {"Read", "Write"}, Dashboard: {"Read"}, Redriver: {"Write"}})
	r.grant("group", c.Kafka.LaneGroup(l.Name), "<kafka.group>.<lane's name>", group)
	r.grant("group", c.Kafka.RetryGroup(l.Name), "<kafka.group>.<lane's name>.retry", map[Role][]string{Worker: {"Read"}, Operator: {"Describe"}, Dashboard: {"Describe"}})
}

// fanouts grants those on the topics of fan-outs and their groups. What cannot be read is
// looked at by hand.
func (r *rights) fanouts(c *configs.Config) {
	group := func(topic, pattern string) {
		r.grant("group", c.Kafka.FanoutGroup(topic), "<kafka.group>."+pattern, map[Role][]string{FanoutWorker: {"Read"}})
	}
	r.topic(fanout.JobsTopic, fanout.JobsTopic, map[Role][]string{HTTPGateway: {"Write"}, FanoutWorker: {"Read"}, Operator: {"Read"}, Dashboard: {"Read"}})
	group(fanout.JobsTopic, fanout.JobsTopic)
	for _, l := range c.Lanes {
		for _, t := range []struct{ name, pattern string }{
			{fanout.ChunksTopic(l.Name), fanout.ChunksTopic("<lane's name>")},
			{fanout.HoldTopic(l.Name), fanout.HoldTopic("<lane's name>")},
		} {
			r.topic(t.name, t.pattern, map[Role][]string{FanoutWorker: {"Read", "Write"}})
			group(t.name, t.pattern)
		}
	}
	r.topic(fanout.DeadTopic, fanout.DeadTopic, map[Role][]string{FanoutWorker: {"Write"}, Operator: {"Read"}})
}

// webhooks grants those on what senders are told. What a sender's topic does not take, or its
// endpoint, is a dead letter, which operators have posted again.
func (r *rights) webhooks(c *configs.Config) {
	for _, topic := range WebhooksTopics(c) {
		r.topic(topic, kafka.WebhooksTopic("<sender>"), map[Role][]string{Worker: {"Write"}, Webhooks: {"Read"}, Operator: {"Write"}})
		r.grant("group", c.Kafka.WebhooksGroup(topic), "<kafka.group>."+kafka.WebhooksTopic("<sender>"), map[Role][]string{Webhooks: {"Read"}})
	}
	r.topic(kafka.DeadWebhooksTopic, kafka.DeadWebhooksTopic, map[Role][]string{Worker: {"Write"}, Webhooks: {"Write"}, Operator: {"Read"}})
}
