package worker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/kafka"
)

// A worker tells a sender that wants to know what became of its notifications, and of a
// copy again what the rows say: that is also what the next owner of one that died does.
func TestAWorkerTellsSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Gateway.Webhooks.Senders = []string{"orders"}
		n, _ := stateNight(t, c, fmt.Sprintf("%064x", "secret-token"))
		defer n.close()
		n.worker()
		sends := func(id, user, sender string) {
			n.produce(id, user, map[string]any{"sender_id": sender})
		}
		sends("delivered", "secret-user", "orders")
		sends("nobody", "none", "orders")
		sends("quiet", "secret-user", "campaigns")
		time.Sleep(time.Minute)
		sends("delivered", "secret-user", "orders")
		time.Sleep(time.Minute)
		reader, err := kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...), kgo.Dialer(n.options.Dial), kgo.ConsumeTopics(kafka.WebhooksTopic("orders")), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		told := map[string][]string{}
		for count := 0; count < 3; {
			for _, r := range reader.PollFetches(t.Context()).Records() {
				count++
				var e events.Ended
				if err := json.Unmarshal(r.Value, &e); err != nil || e.Data.ID != string(r.Key) || strings.Contains(string(r.Value), "secret") {
					t.Errorf("%v: %s", err, r.Value)
				}
				told[e.Data.ID+" "+e.Data.Outcome] = append(told[e.Data.ID+" "+e.Data.Outcome], string(r.Value))
			}
		}
		if d := told["delivered DELIVERED"]; len(d) != 2 || d[0] != d[1] || len(told["nobody SUPPRESSED"]) != 1 {
			t.Errorf("told %q", told)
		}
	})
}

// The topic of a sender is gone: a worker starts, and after a minute tells of its ends in
// the dead letters of webhooks, and the partition goes on. Once the topic is made, it is
// told there.
func TestAWorkerWhoseSendersTopicIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := configs.Default()
		c.Gateway.Webhooks.Senders = []string{"orders"}
		n, _ := stateNight(t, c, fmt.Sprintf("%064x", "secret-token"))
		defer n.close()
		admin := kadm.NewClient(n.client)
		if _, err := admin.DeleteTopic(t.Context(), kafka.WebhooksTopic("orders")); err != nil {
			t.Fatal(err)
		}
		n.worker()
		n.produce("first", "secret-user", map[string]any{"sender_id": "orders"})
		time.Sleep(5 * time.Minute)
		n.produce("second", "secret-user", map[string]any{"sender_id": "orders"})
		time.Sleep(time.Minute)
		if !n.allCommitted(2) {
			t.Error("the partitions have not gone on")
		}
		if _, err := admin.CreateTopic(t.Context(), 2, 1, nil, kafka.WebhooksTopic("orders")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		n.produce("third", "secret-user", map[string]any{"sender_id": "orders"})
		time.Sleep(time.Minute)
		reader, err := kgo.NewClient(kgo.SeedBrokers(c.Kafka.Brokers...), kgo.Dialer(n.options.Dial), kgo.ConsumeTopics(kafka.WebhooksTopic("orders"), kafka.DeadWebhooksTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		got := map[string]string{}
		for len(got) < 3 {
			for _, r := range reader.PollFetches(t.Context()).Records() {
				how := r.Topic
				for _, h := range r.Headers {
					if h.Key == "sender" || h.Key == "reason" {
						how += " " + string(h.Value)
					}
				}
				got[string(r.Key)] = how
			}
		}
		dead := kafka.DeadWebhooksTopic + " orders " + kafka.TopicRefused
		if got["first"] != dead || got["second"] != dead || got["third"] != kafka.WebhooksTopic("orders") {
			t.Errorf("told %v", got)
		}
	})
}
