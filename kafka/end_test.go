package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pushfleet/pushfleet/push"
)

func TestEndIsKnownOfOwnPartitions(t *testing.T) {
	s := newSource(*options(func(o *SourceOptions) { o.Topics, o.OpenBatches = mainTopic("push"), 1 }), Options{}.log())
	a := part(&s.options, 1)
	a.topic = s.topics["push"]
	if _, _, ok := s.End(a.partition); ok {
		t.Error("known without an assignment")
	}
	s.parts[a.partition] = a
	a.high = 120
	if _, _, ok := s.End(a.partition); ok {
		t.Error("known before anybody said how many partitions there are")
	}
	other := push.Partition{Topic: "push", ID: 0}
	s.noteEnds(map[push.Partition]logEnd{a.partition: {offset: 150}, other: {offset: 7}}, nil, start, start)
	if end, partitions, ok := s.End(a.partition); end != 150 || partitions != 2 || !ok {
		t.Errorf("got %d of %d partitions, %v; want 150 of 2", end, partitions, ok)
	}
	s.noteEnds(map[push.Partition]logEnd{a.partition: {offset: 140}}, nil, start, start) // a broker that is behind, and one that does not answer
	if end, partitions, ok := s.End(a.partition); end != 150 || partitions != 2 || !ok {
		t.Errorf("then got %d of %d partitions, %v", end, partitions, ok)
	}
	if _, _, ok := s.End(other); ok {
		t.Error("known of another's partition")
	}
}

// Whoever wants to know the ends often wants to know the partitions before there is one.
func TestPartitionsAreCountedBeforeOneIsOwned(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "push"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	for _, often := range []bool{false, true} {
		so := SourceOptions{Topics: mainTopic("push"), Group: "g"}
		if often {
			so.Look = lookEvery / 5
		}
		s, err := NewSource(Options{Brokers: cluster.ListenAddrs()}, so)
		if err != nil {
			t.Fatal(err)
		}
		s.lookOnce(t.Context())
		if got := s.topics["push"].partitions; (got == 3) != often || (got == 0) == often {
			t.Errorf("often %v: %d partitions counted", often, got)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
