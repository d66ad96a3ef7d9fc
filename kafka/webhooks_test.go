package kafka

import (
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
)

// What a sender is told goes to its own topic, that of one notification to one partition.
func TestEndsGoToTheirSender(t *testing.T) {
	c := newCluster(t, 3, []string{"push.webhooks.orders", "push.webhooks.auth"})
	p := c.producer(ProducerOptions{})
	orders, auth := item("push"), item("push")
	orders.SenderID, auth.SenderID, auth.ID = "orders", "auth", "n2"
	if err := p.Produce(t.Context(), []pipeline.Handover{{To: pipeline.ToEnds, Item: orders, Event: []byte("a")}, {To: pipeline.ToEnds, Item: auth, Event: []byte("b")}}); err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]string{"push.webhooks.orders": "n1 a", "push.webhooks.auth": "n2 b"} {
		r := c.readAll(topic, 1)[0]
		if got := string(r.Key) + " " + string(r.Value); got != want || len(r.Headers) > 0 {
			t.Errorf("%s got %q, want %q", topic, got, want)
		}
	}
}
