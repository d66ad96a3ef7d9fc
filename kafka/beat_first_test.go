package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The lease begins with the assignment, and not with the client's first heartbeat, which
// comes a whole interval later.
func TestALeaseBeginsWithTheAssignment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "push"))
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		o := Options{Brokers: cluster.ListenAddrs(), Dial: network.DialContext}
		writer, err := kgo.NewClient(kgo.SeedBrokers(o.Brokers...), kgo.Dialer(network.DialContext))
		if err != nil {
			t.Fatal(err)
		}
		if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		writer.Close()
		s, err := NewSource(o, SourceOptions{Topics: mainTopic("push"), Group: "g", Balancer: EagerRange, Linger: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		s.Join()
		b, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		if b.Tracker.Lapsed(now) {
			t.Error("there is no lease for the first batch")
		}
		// A session with all of the 10 s: it began with the assignment, just now.
		if !b.Tracker.Lapsed(now.Add(s.options.Session)) {
			t.Error("the lease is longer than a session")
		}
		done(b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}
