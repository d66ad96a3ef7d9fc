package wiring

import (
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/dlq"
)

// DeadLetters is the fleet whose dead letters an operator works on.
func DeadLetters(c *configs.Config) dlq.Config {
	d := dlq.Config{Tier: Tiers(c)[0], StatusTTL: c.Cassandra.TTL, Apps: AppNames(c)}
	for _, l := range c.Lanes {
		d.Lanes = append(d.Lanes, dlq.Lane{Name: l.Name, Topic: l.Topic, GreatestAge: l.GreatestAge})
	}
	return d
}
