package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/push"
)

// TopicRefused is the reason of a dead letter that a sender's own topic has not taken. The
// other reasons are those of who calls endpoints.
const TopicRefused = "topic_refused"

// DeadWebhook is a record of DeadWebhooksTopic: what a sender is to be told, and why it was
// not.
type DeadWebhook struct {
	Sender string
	Reason string
	Detail string    // what was answered last
	Made   time.Time // when there was something to tell
	Key    []byte    // as in the sender's topic: the notification's id
	Value  []byte    // what is to be posted; likewise
}

// The headers of a DeadWebhook.
const (
	headerSender    = "sender"
	headerWhy       = "reason"
	headerAnswer    = "detail"
	headerWebhookID = "webhook-id"
	headerMade      = "made"
)

// Placed is the record for a Placer, in any partition.
func (d *DeadWebhook) Placed() *Placed {
	return &Placed{Topic: DeadWebhooksTopic, Partition: -1, Key: d.Key, Value: d.Value, Headers: d.headers()}
}

func (d *DeadWebhook) record() *kgo.Record {
	r := &kgo.Record{Topic: DeadWebhooksTopic, Key: d.Key, Value: d.Value}
	for _, h := range d.headers() {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return r
}

func (d *DeadWebhook) headers() []Header {
	return []Header{
		{headerSender, []byte(d.Sender)}, {headerWhy, []byte(d.Reason)}, {headerAnswer, []byte(d.Detail)},
		{headerWebhookID, []byte(push.WebhookID(d.Sender, d.Value))}, {headerMade, []byte(d.Made.UTC().Format(time.RFC3339Nano))},
	}
}
