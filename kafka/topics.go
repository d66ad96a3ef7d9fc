package kafka

import (
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// FeedbackTopic is where dead tokens are reported to the registry.
const FeedbackTopic = "push.feedback"

// UsersTopic is the compacted truth about devices and preferences.
const UsersTopic = "push.users"

// QuarantineTopic is where the registry tells, compacted, which records of
// UsersTopic cannot be read.
const QuarantineTopic = "push.users.quarantine"

// EventsTopic is where verdict counts and final failures go, for dashboards.
const EventsTopic = "push.events"

// RetryTopic is the topic of one retry tier of a lane's topic: "30s" gives
// "<topic>.retry.30s".
func RetryTopic(topic, tier string) string { return topic + ".retry." + tier }

// HoldTopic is where a lane's topic keeps what waits for a provider that says
// stop: "<topic>.hold.apns".
func HoldTopic(topic string, p push.Platform) string { return topic + ".hold." + p.String() }

// HoldTopics are all hold topics of a lane's topic.
func HoldTopics(topic string) []string {
	var topics []string
	for p := range push.Platforms {
		topics = append(topics, HoldTopic(topic, p))
	}
	return topics
}

// DLQTopic is the dead-letter topic of a lane's topic.
func DLQTopic(topic string) string { return topic + ".dlq" }

// waits reports whether topic is a retry or hold topic of a lane's topic.
func waits(topic, lane string) bool {
	return strings.HasPrefix(topic, lane+".retry.") || strings.HasPrefix(topic, lane+".hold.")
}
