package kafka

import (
	"maps"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// What a sender is told goes to its own topic, that of one notification to one partition.
func TestEndsGoToTheirSender(t *testing.T) {
	c := newCluster(t, 3, []string{"push.webhooks.orders", "push.webhooks.auth", "push.webhooks-dlq"})
	p := c.producer(ProducerOptions{})
	orders, auth := item("push"), item("push")
	orders.SenderID, auth.SenderID, auth.ID = "orders", "auth", "n2"
	at := time.Date(2026, 11, 26, 7, 30, 0, 5e6, time.UTC)
	if err := p.Produce(t.Context(), []pipeline.Handover{{To: pipeline.ToEnds, Item: orders, Event: []byte("a")}, {To: pipeline.ToEnds, Item: auth, Event: []byte("b")},
		{To: pipeline.ToDeadEnds, Item: auth, Event: []byte("c"), Detail: "UNKNOWN_TOPIC", EndedAt: at}}); err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]string{"push.webhooks.orders": "n1 a", "push.webhooks.auth": "n2 b", "push.webhooks-dlq": "n2 c"} {
		r := c.readAll(topic, 1)[0]
		if got := string(r.Key) + " " + string(r.Value); got != want {
			t.Errorf("%s got %q, want %q", topic, got, want)
		}
		if topic != "push.webhooks-dlq" {
			if len(r.Headers) > 0 {
				t.Errorf("%s got headers %v", topic, r.Headers)
			}
			continue
		}
		wanted := map[string]string{"sender": "auth", "reason": "topic_refused", "detail": "UNKNOWN_TOPIC", "made": "2026-11-26T07:30:00.005Z", "webhook-id": "end_8Y7lrSbRmNGiN6j8TYPWbnZl"}
		if got := headersOf(r); !maps.Equal(got, wanted) {
			t.Errorf("a dead letter has %v, want %v", got, wanted)
		}
	}
}
