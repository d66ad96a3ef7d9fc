package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/deploy/local/localtest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/wiring"
)

// A user is erased from the topics of a gateway that has some.
func TestEraseSubscriptions(t *testing.T) {
	server := localtest.Require(t)
	f := startFleet(t, true)
	f.configure(func(text string) string {
		return text + fmt.Sprintf("gateway: {topics: true}\ncassandra: {hosts: [%q], keyspace: pushctl_%d}\n", server.Cassandra, time.Now().UnixNano())
	})
	f.ok("schema", "apply")
	f.startRegistry()
	c, err := configs.Load(f.config, nil)
	if err != nil {
		t.Fatal(err)
	}
	o, err := wiring.Cassandra(c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	session, err := status.OpenSession(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	topics := subscriptions.New(subscriptions.Options{Tables: session})
	for _, name := range []string{"offers", "news"} {
		topic, _, err := topics.Create(t.Context(), &subscriptions.Topic{Name: name, App: "shop", Service: "promotional", Priority: push.Medium,
			Security: subscriptions.Open, Modes: subscriptions.ModesOf(subscriptions.Push), Size: subscriptions.Small})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range topics.Apply(t.Context(), &topic, []subscriptions.Change{{User: "ada", Mode: subscriptions.Push, At: time.Now()}, {User: "ben", Mode: subscriptions.Push, At: time.Now()}}) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	if v := f.erase("ada", exitDone); v.Found.Subscribed != 2 || v.Left.Subscribed != 2 {
		t.Errorf("a dry run: %+v", v)
	}
	if v := f.erase("ada", exitDone, "--yes", "--wait", "1m"); v.Found.Subscribed != 2 || v.Left.Subscribed != 0 {
		t.Errorf("erased: %+v", v)
	}
	if v := f.erase("ben", exitDone); v.Found.Subscribed != 2 {
		t.Errorf("another user: %+v", v)
	}
	for _, id := range []string{"a\x01b", "\xff"} { // which nobody can subscribe with, and tables cannot have
		f.erase(id, exitDone, "--yes", "--wait", "1m")
	}
}
