package kafka

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/deploy/embedded"
)

// One answer has all topics: of those that a group reads, of one that none reads, and
// of a group that is not there; a topic that is not there is left out.
func TestStandings(t *testing.T) {
	k, err := embedded.StartKafka(embedded.Topic{Name: "a", Partitions: 2}, embedded.Topic{Name: "b", Partitions: 1}, embedded.Topic{Name: "c", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	o := Options{Brokers: k.Addrs()}
	for topic, n := range map[string]int{"a": 3, "b": 2} {
		w, err := NewWriter(o, WriterOptions{Topic: topic})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		for range n {
			if err := w.Append(t.Context(), []Record{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := PartitionOf([]byte("k"), 2)
	c, err := NewConsumer(o, "a", "group-a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for got := 0; got < 3; {
		records, err := c.Poll(ctx, 10)
		if err != nil {
			t.Fatal(err)
		}
		got += len(records)
		if err := c.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	admin, err := NewAdmin(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	standings, err := admin.Standings(ctx, []string{"a", "b", "c", "none"}, map[string]string{"a": "group-a", "b": "group-that-is-not-there", "c": ""})
	if err != nil {
		t.Fatal(err)
	}
	want := []Standing{{Topic: "a", Committed: -1}, {Topic: "a", Partition: 1, Committed: -1}, {Topic: "b", End: 2, Committed: -1}, {Topic: "c", Committed: -1}}
	want[at].End, want[at].Committed = 3, 3
	if !slices.Equal(standings, want) {
		t.Errorf("%+v, want %+v", standings, want)
	}
}
