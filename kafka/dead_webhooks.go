package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DeadWebhooks is an operator's access to DeadWebhooksTopic. It is not safe for concurrent
// use.
type DeadWebhooks struct{ log *Follower }

// NewDeadWebhooks connects on the first call.
func NewDeadWebhooks(o Options) (*DeadWebhooks, error) {
	log, err := NewFollower(o, DeadWebhooksTopic, nil)
	if err != nil {
		return nil, fmt.Errorf("dead letters of webhooks: %w", err)
	}
	return &DeadWebhooks{log}, nil
}

// Close closes the connections.
func (q *DeadWebhooks) Close() { q.log.Close() }

// Extent is what the topic holds now, of what became a dead letter from since on and before
// until; zero = no bound. What comes later is not included.
func (q *DeadWebhooks) Extent(ctx context.Context, since, until time.Time) (Extent, error) {
	return q.log.Extent(ctx, since, until)
}

// Read calls each with the dead letters of an extent, partition by partition and in order,
// until each returns an error.
func (q *DeadWebhooks) Read(ctx context.Context, e Extent, each func(*DeadWebhook) error) error {
	return q.log.readExtent(ctx, e, func(r *kgo.Record) error { return each(deadWebhook(r)) })
}

// Redeliver produces what senders are to be told to their topics again. It returns nil once
// all is acknowledged. After an error some of it may have been written; it can be redelivered
// again, as its webhook-id is the same.
func (q *DeadWebhooks) Redeliver(ctx context.Context, letters []*DeadWebhook) error {
	records := make([]*kgo.Record, len(letters))
	for i, d := range letters {
		records[i] = &kgo.Record{Topic: WebhooksTopic(d.Sender), Key: d.Key, Value: d.Value}
	}
	if err := q.log.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return fmt.Errorf("redelivering webhooks: %w", err)
	}
	return nil
}

// deadWebhook is what a record says. Headers that are missing are empty.
func deadWebhook(r *kgo.Record) *DeadWebhook {
	d := &DeadWebhook{Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		switch v := string(h.Value); h.Key {
		case headerSender:
			d.Sender = v
		case headerWhy:
			d.Reason = v
		case headerAnswer:
			d.Detail = v
		case headerMade:
			d.Made, _ = time.Parse(time.RFC3339Nano, v) // zero = it says nothing readable
		}
	}
	return d
}
