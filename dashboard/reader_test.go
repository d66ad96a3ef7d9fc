package dashboard

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pushfleet/pushfleet/kafka"
)

// reading is a Reader at work in virtual time, and the Kafka that it reads.
type reading struct {
	t       *testing.T
	cluster *kfake.Cluster
	client  *kgo.Client
	feed    *Feed
	stops   []func()
}

// newReading makes push.events with two partitions. It runs in a bubble of synctest.
func newReading(t *testing.T) *reading {
	t.Helper()
	var network kfake.VirtualNetwork
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen))
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{t: t, cluster: cluster, feed: NewFeed(), stops: []func(){cluster.Close}}
	r.create()
	if r.client, err = kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.Dialer(network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	r.stops = append(r.stops, r.client.Close)
	reader := &Reader{Feed: r.feed, Kafka: kafka.Options{Brokers: cluster.ListenAddrs(), Dial: network.DialContext}, Log: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := reader.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	r.stops = append(r.stops, func() { cancel(); running.Wait() })
	return r
}

func (r *reading) create() {
	r.t.Helper()
	if err := r.cluster.CreateTopic(kafka.EventsTopic, 2, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reading) close() {
	for i := len(r.stops) - 1; i >= 0; i-- {
		r.stops[i]()
	}
}

// tell writes events of a source with these numbers to a partition, each of which counts one.
func (r *reading) tell(partition int32, source string, from, to int64) {
	r.t.Helper()
	var records []*kgo.Record
	for n := from; n <= to; n++ {
		value, err := json.Marshal(counted(source, n, time.Now(), sent("critical", "shop", 1)))
		if err != nil {
			r.t.Fatal(err)
		}
		records = append(records, &kgo.Record{Topic: kafka.EventsTopic, Partition: partition, Value: value})
	}
	if err := r.client.ProduceSync(r.t.Context(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// counts expects a sum of outcomes, and the same in the curve of a day.
func (r *reading) counts(why string, want int64) {
	r.t.Helper()
	time.Sleep(time.Minute)
	if s := r.feed.Snapshot(time.Now(), Kind{}, 100); s.Outcomes.Total != want || total(s.Curves[0].Day) != want {
		r.t.Errorf("%s: %d counted, and %d in the curve of a day; want %d", why, s.Outcomes.Total, total(s.Curves[0].Day), want)
	}
}

// When reading fails, the hour is read again, and what was counted of it is not counted
// again, however many records a worker has written since.
func TestWhatIsReadAgainIsNotCountedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t)
		defer r.close()
		const many = 2 * window
		r.tell(0, "worker", 1, many)
		r.counts("at first", many)
		fails := r.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: kafka.EventsTopic, Err: kerr.OffsetOutOfRange})
		r.tell(1, "other", 1, 5)
		r.counts("after a failure", many+5)
		if fails.Hits() != 1 {
			t.Fatalf("%d failures: this tests nothing", fails.Hits())
		}
		r.tell(0, "worker", many+1, many+2)
		r.counts("and on", many+7)
	})
}

// A topic that was deleted and made anew is read from its start.
func TestATopicThatIsMadeAnewIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t)
		defer r.close()
		r.tell(0, "worker", 1, 100)
		r.counts("at first", 100)
		if err := r.cluster.DeleteTopic(kafka.EventsTopic); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		r.create()
		r.client.PurgeTopicsFromClient(kafka.EventsTopic)
		r.tell(0, "worker", 101, 107)
		r.counts("made anew", 107)
	})
}

// Partitions that the topic is given while it is read are read too.
func TestNewPartitionsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReading(t)
		defer r.close()
		r.tell(0, "worker", 1, 10)
		r.counts("at first", 10)
		if grown, err := kadm.NewClient(r.client).CreatePartitions(t.Context(), 1, kafka.EventsTopic); err != nil || grown.Error() != nil {
			t.Fatal(err, grown.Error())
		}
		time.Sleep(5 * time.Minute) // the writer learns of it
		r.tell(2, "worker", 11, 17)
		r.counts("with another partition", 17)
	})
}
