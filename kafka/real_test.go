package kafka

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// realCluster returns the Kafka at PUSHFLEET_TEST_KAFKA (host:port), with topics of the
// test's own.
func realCluster(t *testing.T, specs ...TopicSpec) *cluster {
	t.Helper()
	address := os.Getenv("PUSHFLEET_TEST_KAFKA")
	if address == "" {
		t.Skip("PUSHFLEET_TEST_KAFKA is not set")
	}
	c := &cluster{t: t, options: Options{Brokers: strings.Split(address, ",")}}
	states, err := c.admin().EnsureTopics(t.Context(), specs, EnsureOptions{})
	if err != nil {
		t.Fatalf("creating topics: %v", err)
	}
	for _, s := range states {
		if s.State != TopicCreated {
			t.Fatalf("topic %s: %s", s.Topic, s.State)
		}
	}
	return c
}

func ownName(t *testing.T) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "."), time.Now().UnixNano())
}

func TestRealMembersComeAndGo(t *testing.T) {
	topic := ownName(t)
	c := realCluster(t, TopicSpec{Name: topic, Partitions: comeAndGoPartitions, Replication: 1})
	comeAndGo(t, c, SourceOptions{Topics: mainTopic(topic), Group: topic, Session: 6 * time.Second})
	lags, err := c.admin().Lag(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if len(lags) != comeAndGoPartitions {
		t.Errorf("got %d partitions with a lag, want %d", len(lags), comeAndGoPartitions)
	}
	for _, l := range lags {
		if l.Lag != 0 {
			t.Errorf("partition %d: got lag %d, want 0", l.Partition, l.Lag)
		}
	}
}

func TestRealHandOversAndRetries(t *testing.T) {
	topic := ownName(t)
	retry, dlq := RetryTopic(topic, "500ms"), DLQTopic(topic)
	c := realCluster(t, TopicSpec{Name: retry, Partitions: 1, Replication: 1},
		TopicSpec{Name: dlq, Partitions: 1, Replication: 1, Configs: map[string]string{"max.message.bytes": "2000"}})
	p := c.producer(ProducerOptions{Topic: topic, Tiers: []Tier{{"500ms", 500 * time.Millisecond}}})
	again, dead, large := item(topic), item(topic), item(topic)
	large.Value = []byte(strings.Repeat("x", 50_000))
	again.Value = []byte(`{"id":"n1","app":"shop","user_id":"u1","title":"t"}`)
	if err := p.Produce(t.Context(), []pipeline.Handover{
		{To: pipeline.ToRetry, Item: again, Attempt: 1, Reason: "x"},
		{To: pipeline.ToDLQ, Item: dead, Reason: push.BadJSON},
		{To: pipeline.ToDLQ, Item: large, Reason: push.BadJSON},
	}); err != nil {
		t.Fatal(err)
	}
	sizes := make(map[int]int)
	for _, r := range c.readAll(dlq, 2) {
		sizes[len(r.Value)]++
	}
	if want := map[int]int{0: 1, len(dead.Value): 1}; !reflect.DeepEqual(sizes, want) {
		t.Errorf("got dead letters of sizes %v, want %v", sizes, want)
	}
	s := c.source(SourceOptions{Topics: tier(retry, 500*time.Millisecond), Group: retry, Session: 6 * time.Second})
	b := nextItems(t, s, 1)[0]
	if early := time.Until(b.Items[0].Timestamp.Time().Add(500 * time.Millisecond)); early > 0 || b.Items[0].Attempt != 1 {
		t.Errorf("got the record %v early, attempt %d", early, b.Items[0].Attempt)
	}
	done(b)
}

func TestRealGoneOffsetStops(t *testing.T) {
	topic := ownName(t)
	c := realCluster(t, TopicSpec{Name: topic, Partitions: 1, Replication: 1})
	c.produce(topic, 0, 0, 10)
	f, err := NewFollower(c.options, topic, map[int32]int64{0: 50})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Poll(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "OFFSET_OUT_OF_RANGE") {
		t.Errorf("reading past the end: got %v, want an error that says so", err)
	}
}
