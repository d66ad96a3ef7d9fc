package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
)

// A message to a topic, from the request to the lane: accepted by a gateway, worked on by
// another process, and told by the receipt. A repeat, after the lane has grown, changes
// nothing.
func TestAMessageToATopic(t *testing.T) {
	c := configs.Default()
	fanoutKafka(t, c)
	c.Gateway.Topics, c.Gateway.Inbox = true, true
	c.Apps = append(c.Apps, configs.App{Name: "shop"})
	gatewayFiles(t, c)
	subscribed, _ := subscribers(t, subscriptions.Small, 100, time.Now())
	notes := fanout.NewMemory()
	o := gatewayOptions(c)
	store := inbox.NewMemory(nil)
	o.Topics, o.Fanouts, o.Inboxes = subscribed, notes, store
	rows, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	o.OpenStatus = func(context.Context, status.Options) (Status, error) { return &closedStore{Memory: rows}, nil }
	at := make(chan net.Addr, 1)
	o.Listening = func(a net.Addr) { at <- a }
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	defer func() {
		stop()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		}
	}()
	go func() { ended <- RunGateway(ctx, o) }()
	f := FanoutOptions{Config: c, Log: o.Log, Metrics: options(c, io.Discard).Metrics, OpenStores: func(context.Context) (FanoutStores, error) {
		return FanoutStores{Notes: notes, Audience: TopicAudience(subscribed), Inboxes: TopicInboxes(subscribed, store), Ping: func(context.Context) error { return nil }, Close: func() {}}, nil
	}}
	go func() { ended <- RunFanout(ctx, f) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := "http://" + (<-at).String()
	const body = `{"id": "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", "title": "Snow"}`
	send := func() string {
		a, err := call(t, client, "POST", url+"/v1/topics/news/messages", body)
		if err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}
		return parsed(t, a.text)["receipt"].(string)
	}
	receipt := send()
	finished := func(receipt string) map[string]any {
		for {
			a, err := call(t, client, "GET", url+"/v1/receipts/"+receipt, "")
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("%+v, %v", a, err)
			}
			if r := parsed(t, a.text); r["final"] == true {
				return r
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	r := finished(receipt)
	if got := fmt.Sprint(r["fanout"]); got != "map[audience:topic chunks:map[all:16 done:16] emitted:85 skipped:map[left:5 pull:10] state:ended]" || r["topic"] != "news" {
		t.Errorf("the receipt says %s", got)
	}
	admin, err := kafka.NewAdmin(kafka.Options{Brokers: c.Kafka.Brokers})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.EnsureTopics(ctx, []kafka.TopicSpec{{Name: "push.promotional", Partitions: 7}}, kafka.EnsureOptions{AddPartitions: true}); err != nil {
		t.Fatal(err)
	}
	finished(send())
	for done := int64(0); done < 2; { // both jobs
		offsets, err := admin.Committed(ctx, c.Kafka.FanoutGroup(fanout.JobsTopic), fanout.JobsTopic)
		if err != nil {
			t.Fatal(err)
		}
		done = 0
		for _, at := range offsets {
			done += at
		}
	}
	ends, err := admin.EndOffsets(ctx, "push.promotional")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for p, end := range ends {
		if sum += end; p >= 3 && end > 0 {
			t.Errorf("partition %d, which was not there when it was accepted, has %d records", p, end)
		}
	}
	if sum != 85 {
		t.Errorf("the lane has %d records, want 85", sum)
	}
	// A repeat is no other one. (Who may read it is tried in package gateway.)
	if n := len(store.OfTopic(inbox.Topic{Name: "news", App: "shop"})); n != 1 {
		t.Errorf("%d messages are there to be pulled", n)
	}
	worked := func(receipt string) {
		finished(receipt)
		endings(t, rows, receipt)
	}
	examples(t, "../docs/gateway.md", "One message for many", 4, worked, "GATEWAY="+url, "KEY="+gatewayKey)
}

// endings writes what became of a message's receivers among those of subscribers: four do
// not get it.
func endings(t *testing.T, store *status.Memory, receipt string) {
	t.Helper()
	id, _, _ := strings.Cut(receipt, "~")
	message := fanout.MessageOf(uuid.MustParse(id), "orders", "shop", "news")
	var rows []push.Row
	for i := range 100 {
		if i%10 == 1 || i%20 == 2 {
			continue
		}
		user, state := fmt.Sprint("u", i), push.StateDelivered
		if len(rows) < 4 {
			state = push.StateSuppressed
		}
		rows = append(rows, push.Row{ID: fanout.ID(message, user), State: state, At: time.Now(), UserHash: push.UserHash(user)})
	}
	if err := store.Write(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
}
