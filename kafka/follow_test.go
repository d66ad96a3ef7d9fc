package kafka

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Who follows a topic has each record once, also of partitions that it is given meanwhile, for
// as long as it likes.
func TestFollowersReadNewPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var network kfake.VirtualNetwork
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.SeedTopics(1, "push"))
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		options := Options{Brokers: cluster.ListenAddrs(), Dial: network.DialContext}
		client, err := options.newClient(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(time.Second), kgo.MetadataMaxAge(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		f, err := NewFollower(options, "push", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		enough, seen, ended := errors.New("enough"), []Record(nil), make(chan error, 1)
		following, giveUp := context.WithTimeout(t.Context(), 2*time.Hour)
		defer giveUp()
		go func() {
			ended <- f.Follow(following, func(r Record) error {
				if seen = append(seen, r); len(seen) == 5 {
					return enough
				}
				return nil
			})
		}()
		write := func(records ...*kgo.Record) {
			t.Helper()
			if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * growEvery)
		}
		write(record("push", 0, 1), record("push", 0, 2))
		if grown, err := kadm.NewClient(client).CreatePartitions(t.Context(), 1, "push"); err != nil || grown.Error() != nil {
			t.Fatal(err, grown.Error())
		}
		time.Sleep(time.Minute) // the writer learns of it
		write(record("push", 1, 3), record("push", 0, 4))
		time.Sleep(time.Hour)
		write(record("push", 1, 5))
		if err := <-ended; !errors.Is(err, enough) {
			t.Errorf("it ends with %v", err)
		}
		next := map[int32]int64{}
		for _, r := range seen {
			if r.Offset != next[r.Partition] {
				t.Errorf("partition %d has %d, want %d", r.Partition, r.Offset, next[r.Partition])
			}
			next[r.Partition]++
		}
		if next[0] != 3 || next[1] != 2 {
			t.Errorf("read %v", next)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*growEvery)
		defer cancel()
		if err := f.Follow(ctx, func(Record) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("at the end of its context it ends with %v", err)
		}
	})
}
