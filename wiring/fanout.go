package wiring

import (
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/kafka"
)

// FanoutLimits bound what a process of fan-outs has under way.
func FanoutLimits(c *configs.Config) fanout.Limits {
	f := &c.Gateway.Fanout
	return fanout.Limits{Page: f.Page, Records: f.InFlight, Bytes: int(f.InFlightBytes), Lag: f.Lag, LagTime: f.LagTime, Rate: f.Rate, Open: f.OpenChunks}
}

// FanoutAges are the lanes' greatest ages of messages.
func FanoutAges(c *configs.Config) map[string]time.Duration {
	ages := make(map[string]time.Duration, len(c.Lanes))
	for _, l := range c.Lanes {
		ages[l.Name] = l.GreatestAge
	}
	return ages
}

// FanoutTasks are the options of those who work on a topic of fan-outs.
func FanoutTasks(c *configs.Config, topic string) kafka.TasksOptions {
	k := &c.Kafka
	return kafka.TasksOptions{Topic: topic, Group: k.FanoutGroup(topic), AtOnce: c.Gateway.Fanout.AtOnce, Balancer: k.Balancer, Protocol: k.Protocol,
		Session: k.SessionTimeout, Rebalance: k.RebalanceTimeout, Drain: c.Send.Drain, Commit: k.CommitTimeout}
}

// FanoutPlacer bounds what waits for Kafka: what all lanes may have in flight, and some
// chunks.
func FanoutPlacer(c *configs.Config) kafka.PlacerOptions {
	f := &c.Gateway.Fanout
	const chunks = 4096
	return kafka.PlacerOptions{Linger: 5 * time.Millisecond, Records: len(c.Lanes)*f.InFlight + chunks, Bytes: len(c.Lanes)*int(f.InFlightBytes) + 64<<20}
}

// FanoutTopics are the topics of fan-outs; none if there are no fan-outs.
func FanoutTopics(c *configs.Config) []kafka.TopicSpec {
	if !c.Gateway.Fanout.Enabled {
		return nil
	}
	t := c.Kafka.Topics
	spec := func(name string, partitions int) kafka.TopicSpec {
		return kafka.TopicSpec{Name: name, Partitions: int32(partitions), Replication: int16(t.Replication),
			Configs: map[string]string{"retention.ms": strconv.FormatInt(t.Retention.Milliseconds(), 10)}}
	}
	specs := []kafka.TopicSpec{spec(fanout.JobsTopic, t.Partitions), spec(fanout.DeadTopic, 1)}
	for _, l := range c.Lanes {
		specs = append(specs, spec(fanout.ChunksTopic(l.Name), t.Partitions), spec(fanout.HoldTopic(l.Name), t.Partitions))
	}
	return specs
}
