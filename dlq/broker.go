package dlq

import (
	"context"

	"github.com/pushfleet/pushfleet/kafka"
)

// Cluster is the Broker and the Logs of real brokers. It is safe for concurrent use if its
// reach is.
type Cluster struct {
	options kafka.Options
	reach   func(ctx context.Context, topics ...string) error
}

// OnKafka is a cluster that is reached so. reach is Broker.Reach.
func OnKafka(o kafka.Options, reach func(ctx context.Context, topics ...string) error) *Cluster {
	return &Cluster{o, reach}
}

// Reach implements Broker.
func (c *Cluster) Reach(ctx context.Context, topics ...string) error { return c.reach(ctx, topics...) }

// Open implements Broker.
func (c *Cluster) Open(topic string) (Queue, Audit, error) {
	q, err := kafka.NewDLQ(c.options, topic)
	if err != nil {
		return nil, nil, err
	}
	return q, q.Audit(), nil
}

// OpenLog implements Logs.
func (c *Cluster) OpenLog(topic string) (Log, error) { return kafka.NewLaneLog(c.options, topic) }

var (
	_ Broker = (*Cluster)(nil)
	_ Logs   = (*Cluster)(nil)
)
