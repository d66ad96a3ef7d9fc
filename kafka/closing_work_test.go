package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// A source is closed while no connection can be made and it still has something to ask of
// Kafka: it does not wait for that beyond its time.
func TestClosingWithWorkWhileNothingConnects(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(s *Source, b *pipeline.Batch)
	}{
		{"nothing", func(*Source, *pipeline.Batch) {}},
		{"a commit", func(_ *Source, b *pipeline.Batch) { done(b) }},
		{"a partition to begin anew", func(s *Source, _ *pipeline.Batch) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, a := range s.parts {
				a.tracker.Fence()
				a.lost, a.ended = true, true
				s.beginAnew([]*assignment{a})
			}
			s.signal()
			s.interrupt()
		}},
	} {
		for _, after := range []time.Duration{100 * time.Millisecond, 2 * time.Second, 12 * time.Second} {
			t.Run(tt.name+" "+after.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var network kfake.VirtualNetwork
					cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "push"))
					if err != nil {
						t.Fatal(err)
					}
					defer cluster.Close()
					way := &walled{dial: network.DialContext}
					writer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(network.DialContext))
					if err != nil {
						t.Fatal(err)
					}
					if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
						t.Fatal(err)
					}
					writer.Close()
					s, err := NewSource(Options{Brokers: cluster.ListenAddrs(), Dial: way.Dial}, SourceOptions{Topics: mainTopic("push"), Group: "g"})
					if err != nil {
						t.Fatal(err)
					}
					s.Join()
					b, err := s.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(4 * time.Second)
					way.build()
					tt.do(s, b)
					time.Sleep(after)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					_ = s.Close(ctx) // it could not leave
					if took := time.Since(start); took > 2*time.Second {
						t.Errorf("closed after %v, %v after its time was over", took, took-time.Second)
					}
				})
			})
		}
	}
}
