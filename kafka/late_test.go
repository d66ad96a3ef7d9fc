package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/pipeline"
)

// What is told of ends goes to a topic whose broker says each time that it does not know
// whether it has written. However often that is repeated, the client keeps no more than was
// given to it first, and what goes elsewhere goes. Once the topic takes records, so it does.
func TestATopicThatNeverTakesKeepsNobodyWaiting(t *testing.T) {
	const orders, retries, n = "push.webhooks.orders", "push.retry.30s", 500
	c := newCluster(t, 1, []string{orders, retries}, kfake.NumBrokers(2))
	for topic, node := range map[string]int32{orders: 0, retries: 1} { // no request is for both
		if err := c.MoveTopicPartition(topic, 0, node); err != nil {
			t.Fatal(err)
		}
	}
	id := c.TopicInfo(orders).TopicID
	var away atomic.Bool
	away.Store(true)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		q, resp := r.(*kmsg.ProduceRequest), r.ResponseKind().(*kmsg.ProduceResponse)
		if !away.Load() || len(q.Topics) != 1 || q.Topics[0].TopicID != id && q.Topics[0].Topic != orders {
			return nil, nil, false
		}
		topic, part := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
		topic.Topic, topic.TopicID, part.ErrorCode = q.Topics[0].Topic, q.Topics[0].TopicID, kerr.RequestTimedOut.Code
		topic.Partitions = append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	p := c.producer(ProducerOptions{})
	var hs []pipeline.Handover
	for i := range n {
		it := item("push")
		it.ID, it.SenderID = fmt.Sprint(i), "orders"
		hs = append(hs, pipeline.Handover{To: pipeline.ToEnds, Item: it, Event: []byte("{}")})
	}
	produce := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return p.Produce(ctx, hs)
	}
	for range 20 {
		err := produce(50 * time.Millisecond)
		if partly, ok := errors.AsType[*pipeline.PartlyError](err); !ok || len(partly.Open) != n || len(partly.Refused) > 0 {
			t.Fatalf("produced: %v", err)
		}
	}
	if kept := p.client.BufferedProduceRecords(); kept > n {
		t.Errorf("the client keeps %d records of %d", kept, n)
	}
	other := item("push")
	if err := p.Produce(t.Context(), []pipeline.Handover{{To: pipeline.ToRetry, Item: other, Reason: "again", NotBefore: time.Now()}}); err != nil {
		t.Errorf("a retry: %v", err)
	}
	away.Store(false)
	for began := time.Now(); ; {
		err := produce(time.Second)
		if err == nil {
			break
		}
		if time.Since(began) > patience {
			t.Fatal(err)
		}
	}
	if p.late.has(orders) {
		t.Error("something is still on its way")
	}
}
