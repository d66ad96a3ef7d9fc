package wiring

import (
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
)

// Role is what a process or person does in Kafka.
type Role string

// The roles, in the order of docs/operations.md.
const (
	Worker    Role = "worker"
	Registry  Role = "registry"
	Operator  Role = "operator"  // pushctl
	Producer  Role = "producer"  // of notifications
	Dashboard Role = "dashboard" // a reader of push.events
)

// Right is what a role may do with one topic or consumer group. In Kafka, Read,
// Write, Alter and Delete each include Describe.
type Right struct {
	Role       Role
	Resource   string // "topic" or "group"
	Name       string
	Pattern    string   // Name, with configured parts in angle brackets
	Operations []string // as in kafka-acls.sh
}

// Rights are exactly the rights that each role needs.
func Rights(c *configs.Config) (rights []Right) {
	grant := func(resource, name, pattern string, needs map[Role][]string) {
		for _, role := range []Role{Worker, Registry, Operator, Producer, Dashboard} {
			if operations := needs[role]; len(operations) > 0 {
				rights = append(rights, Right{role, resource, name, pattern, operations})
			}
		}
	}
	topic := func(name, pattern string, needs map[Role][]string) {
		// `pushctl topics ensure` creates every topic, reads its settings and
		// adds partitions.
		needs[Operator] = append([]string{"Create", "Alter", "DescribeConfigs"}, needs[Operator]...)
		grant("topic", name, pattern, needs)
	}
	for _, l := range c.Lanes {
		topic(l.Topic, "<lane>", map[Role][]string{Worker: {"Read"}, Operator: {"Read", "Write"}, Producer: {"Write"}})
		for _, t := range Tiers(c) {
			topic(kafka.RetryTopic(l.Topic, t.Name), "<lane>.retry.<tier>", map[Role][]string{Worker: {"Read", "Write"}, Operator: {"Write"}})
		}
		for _, t := range DeferTiers(c) {
			topic(kafka.DeferTopic(l.Topic, t.Name), "<lane>.defer.<tier>", map[Role][]string{Worker: {"Read", "Write"}})
		}
		for _, name := range kafka.HoldTopics(l.Topic) {
			topic(name, "<lane>.hold.<provider>", map[Role][]string{Worker: {"Read", "Write"}})
		}
		topic(kafka.DLQTopic(l.Topic), "<lane>.dlq", map[Role][]string{Worker: {"Write"}, Operator: {"Read", "Delete"}})
		topic(kafka.AuditTopic(l.Topic), "<lane>.dlq.audit", map[Role][]string{Operator: {"Read", "Write"}})
		grant("group", c.Kafka.LaneGroup(l.Name), "<kafka.group>.<lane's name>", map[Role][]string{Worker: {"Read"}, Operator: {"Describe"}})
		grant("group", c.Kafka.RetryGroup(l.Name), "<kafka.group>.<lane's name>.retry", map[Role][]string{Worker: {"Read"}, Operator: {"Describe"}})
	}
	// A worker only checks that push.users exists. A registry also compares
	// registry.max_stale with the topic's retention of tombstones. Who erases a user
	// reads what there is of one.
	topic(kafka.UsersTopic, kafka.UsersTopic, map[Role][]string{Worker: {"Describe"}, Registry: {"DescribeConfigs", "Read", "Write"}, Operator: {"Read", "Write"}})
	topic(kafka.QuarantineTopic, kafka.QuarantineTopic, map[Role][]string{Registry: {"Write"}, Operator: {"Read"}})
	topic(kafka.FeedbackTopic, kafka.FeedbackTopic, map[Role][]string{Worker: {"Write"}, Registry: {"Read"}})
	topic(kafka.EventsTopic, kafka.EventsTopic, map[Role][]string{Worker: {"Write"}, Operator: {"Read"}, Dashboard: {"Read"}})
	grant("group", c.Registry.Group, "<registry.group>", map[Role][]string{Registry: {"Read"}})
	return rights
}
