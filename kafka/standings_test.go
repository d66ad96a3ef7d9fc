package kafka

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

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

// What a partition without a leader has, or an offset that a broker does not tell, is not
// known: neither nothing, nor everything there is.
func TestStandingsNotKnown(t *testing.T) {
	offsets := func(errs ...error) kadm.ListedOffsets {
		l := map[int32]kadm.ListedOffset{}
		for i, err := range errs {
			l[int32(i)] = kadm.ListedOffset{Topic: "a", Partition: int32(i), Offset: 9, Err: err}
		}
		return kadm.ListedOffsets{"a": l, "none": {-1: {Topic: "none", Partition: -1, Err: kerr.UnknownTopicOrPartition}}}
	}
	group := kadm.OffsetResponses{}
	for i, err := range []error{nil, nil, kerr.UnstableOffsetCommit} {
		group.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: "a", Partition: int32(i), At: 7}, Err: err})
	}
	got := standingsOf([]string{"a", "none"}, map[string]string{"a": "g"}, kadm.FetchOffsetsResponses{"g": {Group: "g", Fetched: group}},
		offsets(nil, nil, nil), offsets(nil, kerr.LeaderNotAvailable, nil))
	want := []Standing{{Topic: "a", Start: 9, End: 9, Committed: 7}, {Topic: "a", Partition: 1, Committed: -1, Err: kerr.LeaderNotAvailable}, {Topic: "a", Partition: 2, Committed: -1, Err: kerr.UnstableOffsetCommit}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
