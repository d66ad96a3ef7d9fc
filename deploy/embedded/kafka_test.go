package embedded_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/deploy/embedded"
)

func TestKafkaCarriesRecords(t *testing.T) {
	k, err := embedded.StartKafka(embedded.Topic{Name: "t", Partitions: 2}, embedded.Topic{Name: "u", Partitions: 1, Compacted: true})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addrs()...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"),
		kgo.ProducerBatchMaxBytes(2<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	large := make([]byte, 1<<20)
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: large}).FirstErr(); err != nil {
		t.Fatalf("a value of 1 MiB must fit: %v", err)
	}
	fetches := client.PollFetches(ctx)
	if err := fetches.Err(); err != nil || fetches.NumRecords() != 1 || len(fetches.Records()[0].Value) != len(large) {
		t.Fatalf("got %d records, %v", fetches.NumRecords(), err)
	}
}

func TestKafkaRefusesATopicWithoutPartitions(t *testing.T) {
	if _, err := embedded.StartKafka(embedded.Topic{Name: "t"}); err == nil {
		t.Error("no error")
	}
}
