package kafka

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Records of Follower and Consumer have everything that the log has.
func TestARecordIsWhatTheLogHas(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_000)
	bare := &kgo.Record{Topic: "push", Partition: 3, Offset: 41, Timestamp: at, Key: []byte("k")}
	want := Record{Partition: 3, Offset: 41, Timestamp: at, Key: []byte("k")}
	if got := fromClient(bare); !reflect.DeepEqual(got, want) {
		t.Errorf("a tombstone without headers: %+v, want %+v", got, want)
	}
	full := *bare
	full.Value, full.Headers = []byte("v"), []kgo.RecordHeader{header("a", "1"), header("b", "2")}
	want.Value, want.Headers = []byte("v"), map[string]string{"a": "1", "b": "2"}
	if got := fromClient(&full); !reflect.DeepEqual(got, want) {
		t.Errorf("with headers: %+v, want %+v", got, want)
	}
}

// The error of a partition is a PartitionError; that of a topic or of the client is not.
// Records that came with an error are not lost.
func TestWhoseErrorAPollReturns(t *testing.T) {
	polled := func(topic string, partition int32) kgo.Fetches {
		return kgo.Fetches{{Topics: []kgo.FetchTopic{
			{Topic: "push", Partitions: []kgo.FetchPartition{{Partition: 1, Records: []*kgo.Record{{Topic: "push", Partition: 1, Offset: 7}}}}},
			{Topic: topic, Partitions: []kgo.FetchPartition{{Partition: partition, Err: kerr.TopicAuthorizationFailed}}},
		}}}
	}
	for _, tt := range []struct {
		whose     string
		topic     string
		partition int32
		named     bool
	}{
		{"a partition's", "push", 0, true},
		{"the topic's", "push", -1, false},
		{"the client's", "", -1, false},
		{"the client's, as of a partition", "", 0, false},
	} {
		records, err := collect(polled(tt.topic, tt.partition), "push")
		of, named := errors.AsType[*PartitionError](err)
		if named != tt.named || named && of.Partition.ID != tt.partition || !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("%s: got %v, which names a partition %v, want %v", tt.whose, err, named, tt.named)
		}
		if len(records) != 1 || records[0].Offset != 7 {
			t.Errorf("%s: got records %v, want also the one that was read", tt.whose, records)
		}
	}
}

// A refused commit of a Consumer is an error: the same records come again.
func TestAConsumersCommitThatIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, []string{"push.feedback"})
	c.produce("push.feedback", 0, 0, 3)
	k, err := NewConsumer(c.options, "push.feedback", "g")
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if rs, err := k.Poll(ctx, 10); len(rs) == 0 || err != nil {
		t.Fatalf("%d records, %v", len(rs), err)
	}
	refused := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.GroupAuthorizationFailed, Count: -1})
	if err := k.Commit(ctx); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("refused: %v", err)
	}
	refused.Remove()
	if at := c.committed("g", "push.feedback", 0); at != -1 {
		t.Errorf("got commit %d", at)
	}
}

// Kafka's own producers choose a key's partition by murmur2, and so must whoever looks
// for the key. The hashes are those of Kafka's tests (UtilsTest.testMurmur2).
func TestPartitionsAreThoseOfKafka(t *testing.T) {
	for key, hash := range map[string]int32{"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "abc": 479470107} {
		for _, n := range []int{1, 7, 256} {
			if got, want := PartitionOf([]byte(key), n), (hash&0x7fffffff)%int32(n); got != want {
				t.Errorf("%q of %d: got %d, want %d", key, n, got, want)
			}
		}
	}
}
