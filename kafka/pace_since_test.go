package kafka

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
)

// The linger of what a poll has waited for begins when it comes, and not when the poll began: records of a
// delayed topic that are due when they come share a batch with what follows.
func TestTheLingerBeginsWhenRecordsCome(t *testing.T) {
	type some struct {
		at time.Duration
		n  int
	}
	const ms = time.Millisecond
	for _, row := range []struct {
		why    string
		topics []SourceTopic
		at     []some
	}{
		{"held records that are due", []SourceTopic{{Name: "t", Kind: Hold}}, []some{{0, 1}, {2 * ms, 1}, {4 * ms, 1}}},
		{"held records in numbers that are due", []SourceTopic{{Name: "t", Kind: Hold}}, []some{{0, 600}, {5 * ms, 600}}},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVirtual(t, kfake.SeedTopics(1, "t"))
				s, err := NewSource(v.options(v.network.DialContext), SourceOptions{Topics: row.topics, Group: "g", Linger: 20 * ms})
				if err != nil {
					t.Fatal(err)
				}
				s.Join()
				writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.ProducerLinger(0))
				if err != nil {
					t.Fatal(err)
				}
				defer writer.Close()
				time.Sleep(5500 * time.Millisecond) // it is in the midst of a poll
				began := time.Now()
				var got []handed
				ctx, stop := context.WithCancel(t.Context())
				reading := make(chan struct{}) // closed when nothing is read any more
				go func() {
					defer close(reading)
					var open []*pipeline.Batch
					for {
						b, err := s.Next(ctx)
						if err != nil {
							done(open...)
							return
						}
						got, open = append(got, handed{time.Since(began), len(b.Items)}), append(open, b)
					}
				}()
				for _, d := range row.at {
					time.Sleep(d.at - time.Since(began))
					rs := make([]*kgo.Record, d.n)
					for i := range rs {
						rs[i] = &kgo.Record{Topic: "t", Value: []byte("{}"), Headers: []kgo.RecordHeader{header("pf-v", "1"), header("pf-not-before", strconv.FormatInt(began.Add(-time.Second).UnixMilli(), 10))}}
					}
					if err := writer.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Second)
				stop()
				<-reading
				want, all := 0, 0
				for _, d := range row.at {
					want += d.n
				}
				for _, g := range got {
					all += g.records
				}
				// Which fetch brings which of those in numbers is the broker's affair: some wait for two short rests.
				if latest := row.at[len(row.at)-1].at + 32*ms; all != want || got[0].at < 20*ms || got[0].at > 22*ms || got[len(got)-1].at > latest {
					t.Errorf("handed out %v; want the first after 20 ms, and all %d after %v at the latest", got, want, latest)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
