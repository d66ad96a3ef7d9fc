package wiring

import (
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/kafka"
)

// webhooksPartitions is the most partitions of a topic of webhooks: an endpoint is slower than one of
// them, and each may have a window of events in memory.
const webhooksPartitions = 6

// WebhooksTopics are the topics of what senders are told, in the order of the senders.
func WebhooksTopics(c *configs.Config) []string {
	var topics []string
	for _, sender := range c.Gateway.Webhooks.Senders {
		topics = append(topics, kafka.WebhooksTopic(sender))
	}
	return topics
}

// WebhooksTasks are the options of those who deliver what one sender is told.
func WebhooksTasks(c *configs.Config, sender string) kafka.TasksOptions {
	k, w := &c.Kafka, &c.Gateway.Webhooks
	topic := kafka.WebhooksTopic(sender)
	return kafka.TasksOptions{Topic: topic, Group: k.WebhooksGroup(topic), Window: w.Window, AtOnce: w.AtOnce, Balancer: k.Balancer, Protocol: k.Protocol,
		Session: k.SessionTimeout, Rebalance: k.RebalanceTimeout, Drain: c.Send.Drain, Commit: k.CommitTimeout}
}

// WebhooksPlacer bounds the dead letters that wait for Kafka.
func WebhooksPlacer(c *configs.Config) kafka.PlacerOptions {
	return kafka.PlacerOptions{Linger: 5 * time.Millisecond, Records: 10_000, Bytes: 16 << 20}
}
