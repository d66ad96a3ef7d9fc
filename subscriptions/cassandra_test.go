package subscriptions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/local/keyspacetest"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/subscriptions"
	"github.com/pushfleet/pushfleet/subscriptions/subscriptionstest"
)

func TestCassandra(t *testing.T) {
	session := keyspacetest.Open(t)
	subscriptionstest.Run(t, 50, func(_ *testing.T, now func() time.Time) subscriptionstest.Store {
		return subscriptions.New(subscriptions.Options{Tables: session, Now: now, Most: 50})
	})
}

// A user who is erased is in neither table, whatever the clock of the gateway was that
// wrote him; others stay, and what he does after that holds.
func TestForget(t *testing.T) {
	s := subscriptions.New(subscriptions.Options{Tables: keyspacetest.Open(t)})
	wanted := subscriptions.Topic{App: "shop", Service: "promotional", Priority: push.Medium, Security: subscriptions.Open,
		Modes: subscriptions.ModesOf(subscriptions.Push), Size: subscriptions.Medium}
	var topics []*subscriptions.Topic
	for i := range 3 {
		wanted.Name = fmt.Sprint("t", i)
		made, _, err := s.Create(t.Context(), &wanted)
		if err != nil {
			t.Fatal(err)
		}
		topics = append(topics, &made)
	}
	apply := func(of int, user string, mode subscriptions.Mode, at time.Time) {
		t.Helper()
		if r := s.Apply(t.Context(), topics[of], []subscriptions.Change{{User: user, Mode: mode, At: at}}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	count := func(user string, want int) {
		t.Helper()
		if n, err := s.Count(t.Context(), user); err != nil || n != want {
			t.Errorf("%s has %d rows, %v; want %d", user, n, err, want)
		}
		for _, of := range topics {
			page, err := s.Page(t.Context(), of.Name, of.Layout, subscriptions.Slice(user), "", 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range page {
				if one.User == user && want == 0 {
					t.Errorf("%s is still in %s", user, of.Name)
				}
			}
		}
	}
	now := time.Now()
	apply(0, "u1", subscriptions.Push, now)
	apply(1, "u1", subscriptions.Push, now.Add(time.Minute)) // by a clock that is ahead
	apply(2, "u1", subscriptions.Left, now)
	apply(0, "u2", subscriptions.Push, now)
	count("u1", 3)
	for range 2 {
		if err := s.Forget(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
		count("u1", 0)
	}
	count("u2", 1)
	apply(0, "u1", subscriptions.Push, time.Now().Add(time.Second))
	count("u1", 1)
}
