package kafka

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Records that come one by one cost a request for each quarter of the linger and not one
// each; what makes a good part of a batch is polled as it comes.
func TestATrickleIsPolledAtAPace(t *testing.T) {
	for _, row := range []struct {
		why      string
		batch    int // BatchRecords
		open     int // OpenBatches
		min, max int64
	}{
		{"a record is little", 10_000, 4, 30, 60},
		{"a record is a twentieth of a batch", 20, 100, 150, 260},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVirtual(t)
				var counted atomic.Bool
				var fetches atomic.Int64
				v.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
					v.KeepControl()
					if counted.Load() {
						fetches.Add(1)
					}
					return nil, nil, false
				})
				dial := func(ctx context.Context, kind, address string) (net.Conn, error) {
					return v.network.DialContext(ctx, kind, address)
				}
				s, open := v.joined(dial, func(o *SourceOptions) {
					o.Linger, o.BatchRecords, o.OpenBatches = 20*time.Millisecond, row.batch, row.open
				})
				done(open)
				writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.ProducerLinger(0))
				if err != nil {
					t.Fatal(err)
				}
				defer writer.Close()
				counted.Store(true)
				var came atomic.Int64
				ctx, stop := context.WithCancel(t.Context())
				reading := make(chan struct{}) // closed when nothing is read any more
				go func() {
					defer close(reading)
					for {
						b, err := s.Next(ctx)
						if err != nil {
							return
						}
						came.Add(int64(len(b.Items)))
						done(b)
					}
				}()
				for range 200 {
					if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond)
				}
				counted.Store(false)
				time.Sleep(100 * time.Millisecond)
				if n := fetches.Load(); n < row.min || n > row.max || came.Load() != 200 {
					t.Errorf("%d requests for %d records, want %d to %d for all 200", n, came.Load(), row.min, row.max)
				}
				stop()
				<-reading
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A poll after which it pauses found less than there was room for, and little of a batch
// and of a fetch.
func TestWhatATrickleIs(t *testing.T) {
	s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g"}.withDefaults(), slog.New(slog.DiscardHandler))
	for _, row := range []struct {
		why  string
		came amount
		room int
		want bool
	}{
		{"nothing came: it has waited for as long as it may", amount{}, 10_000, false},
		{"a record", amount{1, 500}, 10_000, true},
		{"less than a twentieth of a batch", amount{499, 50_000}, 10_000, true},
		{"a twentieth", amount{500, 50_000}, 10_000, false},
		{"few records that are large: they fill fetches", amount{13, 13 * 4096}, 10_000, false},
		{"as many as there was room for: more may wait", amount{40, 20_000}, 40, false},
	} {
		if got := s.isTrickle(row.came, row.room); got != row.want {
			t.Errorf("%s: %t, want %t", row.why, got, row.want)
		}
	}
}
