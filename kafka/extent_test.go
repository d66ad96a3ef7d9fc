package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writeMarkers returns once the markers of id's ended transaction are written. Kafka
// answers EndTxn before it writes them, and gives nobody the id until it has.
func writeMarkers(t *testing.T, c *cluster, id string) {
	t.Helper()
	successor, err := c.options.newClient(kgo.TransactionalID(id))
	if err != nil {
		t.Fatal(err)
	}
	defer successor.Close()
	if _, _, err := successor.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// readBehindGaps reads a log whose last offset has no record. A reader that waits for
// one there would wait for ever.
func readBehindGaps(t *testing.T, c *cluster, topic string) {
	t.Helper()
	producer, err := c.options.newClient(kgo.TransactionalID(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for range 2 { // records, and a marker after them that is no record
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := producer.ProduceSync(t.Context(), record(topic, 0, 1), record(topic, 0, 2)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := producer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	writeMarkers(t, c, topic)
	f, err := NewFollower(c.options, topic, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := f.Extent(t.Context(), time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if e.Records() != 6 {
		t.Fatalf("got %d offsets, want 4 records and 2 markers", e.Records())
	}
	var offsets []int64
	if err := f.ReadExtent(t.Context(), e, func(r Record) error {
		offsets = append(offsets, r.Offset)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(offsets) != 4 || offsets[2] != 3 || offsets[3] != 4 {
		t.Errorf("got offsets %v", offsets)
	}
	// Afterwards it can follow the topic.
	f.Seek(map[int32]int64{0: e[0].To})
	if _, err := f.EndOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.produce(topic, 0, 9, 1)
	if rs := follow(t, f, 1); len(rs) != 1 || rs[0].Offset != e[0].To {
		t.Errorf("got %v, want offset %d", rs, e[0].To)
	}
}

func TestAnExtentEndsBehindItsLastRecord(t *testing.T) {
	readBehindGaps(t, newCluster(t, 1, []string{"push.dlq"}), "push.dlq")
}

func TestRealDLQExtentEndsBehindItsLastRecord(t *testing.T) {
	topic := ownName(t)
	readBehindGaps(t, realCluster(t, TopicSpec{Name: topic, Partitions: 1, Replication: 1}), topic)
}
