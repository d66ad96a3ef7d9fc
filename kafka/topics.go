package kafka

import (
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// FeedbackTopic is where dead tokens are reported to the registry.
const FeedbackTopic = "push.feedback"

// UsersTopic is the compacted truth about devices and preferences.
const UsersTopic = "push.users"

// QuarantineTopic is the compacted topic in which the registry reports records of
// UsersTopic that cannot be read.
const QuarantineTopic = "push.users.quarantine"

// EventsTopic is where verdict counts and final failures go, for dashboards.
const EventsTopic = "push.events"

// WebhooksTopic returns the topic of what a sender is told of its notifications' ends. Each
// has its own: one whose endpoint is away keeps nobody waiting, and what is not delivered
// stays where it is, by its offset.
func WebhooksTopic(sender string) string { return webhooksTopic + "." + sender }

// DeadWebhooksTopic is where that goes which could not be delivered. No sender has a name
// that begins with a dash.
const DeadWebhooksTopic = webhooksTopic + "-dlq"

// webhooksTopic begins the names of these topics.
const webhooksTopic = "push.webhooks"

// RetryTopic returns the topic of a retry tier of a lane's topic: for "30s" it is
// "<topic>.retry.30s".
func RetryTopic(topic, tier string) string { return topic + ".retry." + tier }

// DeferTopic returns the topic of a deferral tier of a lane's topic: for "30s" it is
// "<topic>.defer.30s".
func DeferTopic(topic, tier string) string { return topic + ".defer." + tier }

// holdTopic returns the topic for records that wait for a stopped route of a platform:
// "<topic>.hold.apns".
func holdTopic(topic string, p push.Platform) string { return topic + ".hold." + p.String() }

// HoldTopics returns all hold topics of a lane's topic.
func HoldTopics(topic string) []string {
	var topics []string
	for p := range push.Platforms {
		topics = append(topics, holdTopic(topic, p))
	}
	return topics
}

// DLQTopic returns the dead-letter topic of a lane's topic.
func DLQTopic(topic string) string { return topic + ".dlq" }

// waits reports whether topic is a retry, deferral or hold topic of a lane's topic.
func waits(topic, lane string) bool {
	return strings.HasPrefix(topic, lane+".retry.") || strings.HasPrefix(topic, lane+".defer.") || strings.HasPrefix(topic, lane+".hold.")
}
