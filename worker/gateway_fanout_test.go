package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/inbox"
	"github.com/pushfleet/pushfleet/kafka"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/segments"
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
	url := sendsToMany(t, o, FanoutStores{Notes: notes, Audience: TopicAudience(subscribed), Inboxes: TopicInboxes(subscribed, store)})
	ctx, client := t.Context(), &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	const body = `{"id": "0199f3c2-7d1a-7c3e-9b1f-2a6c5d4e3f21", "title": "Snow"}`
	send := func() string {
		a, err := call(t, client, "POST", url+"/v1/topics/news/messages", body)
		if err != nil || a.status != http.StatusAccepted {
			t.Fatalf("%+v, %v", a, err)
		}
		return parsed(t, a.text)["receipt"].(string)
	}
	receipt := send()
	finished := func(receipt string) map[string]any { return finished(t, url, receipt) }
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
	examples(t, "../docs/gateway.md", "## One message for many", 5, worked, "GATEWAY="+url, "KEY="+gatewayKey)
}

// The examples of docs/gateway.md of messages to all users of an app, and to those in a
// segment, as they stand there: each is answered with what the page says, and reaches those
// users and no others.
func TestTheExamplesToUsersOfAnApp(t *testing.T) {
	c := configs.Default()
	fanoutKafka(t, c)
	c.Gateway.Topics, c.Gateway.Audiences, c.Segments.Source = true, true, filepath.Join(t.TempDir(), "segments")
	c.Apps = append(c.Apps, configs.App{Name: "shop"})
	gatewayFiles(t, c)
	members := audiences.NewMemory(nil)
	var in []uint32 // every tenth of the app's users
	for i := range 30 {
		user := fmt.Sprint("u", i)
		if number, _ := segments.ByHash.Of(user, 0, false); i%10 == 0 {
			in = append(in, number)
		}
		if _, err := members.Add(t.Context(), []audiences.Use{{App: "shop", User: user}, {App: "bank", User: "other" + user}}); err != nil {
			t.Fatal(err)
		}
	}
	var b segments.Builder
	if err := errors.Join(b.AddGroup("lifecycle", false, segments.ByHash), b.AddUsers("lifecycle", "new", segments.UsersOf(in...))); err != nil {
		t.Fatal(err)
	}
	set, err := b.Build(1, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := segments.WriteFile(c.Segments.Source, set); err != nil {
		t.Fatal(err)
	}
	o, notes := gatewayOptions(c), fanout.NewMemory()
	o.Topics, o.Fanouts, o.AppUsers = subscriptions.NewMemory(nil), notes, members
	rows, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		t.Fatal(err)
	}
	o.OpenStatus = func(context.Context, status.Options) (Status, error) { return &closedStore{Memory: rows}, nil }
	url := sendsToMany(t, o, FanoutStores{Notes: notes, Audience: kindsOfAudiences{fanout.OfApp: AppAudience(members)}})
	reaches := func(want string) func(string) {
		return func(receipt string) {
			t.Helper()
			if got := fmt.Sprint(finished(t, url, receipt)["fanout"]); got != want {
				t.Errorf("the receipt says %s, want %s", got, want)
			}
		}
	}
	env := []string{"GATEWAY=" + url, "KEY=" + gatewayKey}
	examples(t, "../docs/gateway.md", "### All users of an app", 1, reaches("map[audience:app chunks:map[all:1024 done:1024] emitted:30 state:ended]"), env...)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for { // until the gateway has read which segments there are
		a, err := call(t, client, "POST", url+"/v1/apps/shop/segments/lifecycle/gone/messages", `{"service_type": "promotional", "title": "Welcome"}`)
		if err != nil {
			t.Fatal(err)
		}
		if a.status != http.StatusServiceUnavailable {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	examples(t, "../docs/gateway.md", "#### Those in a segment", 1, reaches("map[audience:segment chunks:map[all:1024 done:1024] emitted:3 state:ended]"), env...)
}

// sendsToMany runs a gateway, and a process of fan-outs on its configuration, until the test
// ends, and says where the gateway is.
func sendsToMany(t *testing.T, o GatewayOptions, stores FanoutStores) (url string) {
	t.Helper()
	stores.Ping, stores.Close = func(context.Context) error { return nil }, func() {}
	f := FanoutOptions{Config: o.Config, Log: o.Log, Metrics: options(o.Config, io.Discard).Metrics, OpenStores: func(context.Context) (FanoutStores, error) { return stores, nil }}
	at := make(chan net.Addr, 1) // buffered, capacity 1; never closed
	o.Listening = func(a net.Addr) { at <- a }
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 2) // buffered, capacity 2; never closed
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		}
	})
	go func() { ended <- RunGateway(ctx, o) }()
	go func() { ended <- RunFanout(ctx, f) }()
	return "http://" + (<-at).String()
}

// finished waits until a message's receipt is final, and returns it.
func finished(t *testing.T, url, receipt string) map[string]any {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
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
