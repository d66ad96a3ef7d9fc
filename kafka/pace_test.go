package kafka

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Records that come one by one cost two requests for each linger and not one
// each; what makes a good part of a batch is polled as it comes.
func TestATrickleIsPolledAtAPace(t *testing.T) {
	for _, row := range []struct {
		why      string
		batch    int // BatchRecords
		open     int // OpenBatches
		min, max int64
	}{
		{"a record is little", 10_000, 4, 16, 24},
		{"a record is a twentieth of a batch, and two are more than a trickle", 20, 100, 40, 130},
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
				s, open := v.joined(v.network.DialContext, func(o *SourceOptions) {
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

// A poll after which it rests found less than there was room for, and little of a batch
// and of a fetch.
func TestWhatATrickleIs(t *testing.T) {
	for _, row := range []struct {
		why   string
		batch int // BatchBytes; 0 = as by default
		came  amount
		room  int
		want  bool
	}{
		{"nothing came: it has waited for as long as it may", 0, amount{}, 10_000, false},
		{"a record", 0, amount{1, 500}, 10_000, true},
		{"less than a twentieth of a batch", 0, amount{499, 50_000}, 10_000, true},
		{"a twentieth", 0, amount{500, 50_000}, 10_000, false},
		{"few records that are large", 0, amount{12, 52428 - 1}, 10_000, true},
		{"a twentieth of a fetch", 0, amount{13, 52428}, 10_000, false},
		{"a twentieth of a fetch, which is as small as a batch", 128 << 10, amount{3, 6553}, 10_000, false},
		{"less", 128 << 10, amount{3, 6552}, 10_000, true},
		{"as many as there was room for: more may wait", 0, amount{40, 20_000}, 40, false},
	} {
		s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g", BatchBytes: row.batch}.withDefaults(), slog.New(slog.DiscardHandler))
		if got := s.isTrickle(row.came, row.room); got != row.want {
			t.Errorf("%s: %t, want %t", row.why, got, row.want)
		}
	}
}

// A partition that is full is looked at again during a rest, however long records may wait, and
// fetched when the fetch ends that was sent without it.
func TestAPartitionHasRoomAgainDuringARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVirtual(t, kfake.SeedTopics(2, "t"))
		writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer writer.Close()
		produce := func(partition int32, n int) {
			for range n {
				if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: partition, Value: []byte("{}")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		produce(0, 300)
		s, err := NewSource(v.options(v.network.DialContext), SourceOptions{Topics: mainTopic("t"), Group: "g", BatchRecords: 100, OpenBatches: 1, Linger: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		s.Join()
		first, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		produce(1, 1)
		synctest.Wait() // it has come, and no partition has room that has more
		began := time.Now()
		done(first)
		if err := s.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("the next batch of the full partition came after %v", took)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A rest is a whole linger where records come one by one, and a part of it where more is on its
// way, or where a partition must be checked sooner; and it is never longer than a poll may wait.
func TestHowLongATrickleRests(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		why    string
		linger time.Duration
		again  time.Duration // 0 = nothing is to be checked
		many   bool
		kind   Kind
		want   time.Duration
		whole  bool
	}{
		{"by default", 20 * time.Millisecond, 0, false, Main, 20 * time.Millisecond, true},
		{"one is due later", 20 * time.Millisecond, time.Minute, false, Main, 20 * time.Millisecond, true},
		{"one is due just then", 20 * time.Millisecond, 20 * time.Millisecond, false, Main, 20 * time.Millisecond, true},
		{"many came before", 20 * time.Millisecond, 0, true, Main, 5 * time.Millisecond, false},
		{"a delayed topic", 20 * time.Millisecond, 0, false, Retry, 5 * time.Millisecond, false},
		{"a partition is full", 100 * time.Millisecond, recheck, false, Main, recheck, false},
		{"one is full, and the linger is short", 20 * time.Millisecond, recheck, false, Main, 5 * time.Millisecond, false},
		{"a poll waits as long as the linger", time.Second, 0, false, Main, time.Second, true},
		{"records wait for longer", 1200 * time.Millisecond, 0, false, Main, 300 * time.Millisecond, false},
		{"records wait for seconds", 10 * time.Second, 0, false, Main, time.Second, false},
	} {
		topics := mainTopic("push")
		topics[0].Kind = row.kind
		s := newSource(SourceOptions{Topics: topics, Group: "g", Linger: row.linger}.withDefaults(), slog.New(slog.DiscardHandler))
		var again time.Time
		if row.again > 0 {
			again = now.Add(row.again)
		}
		if until, whole := s.restUntil(row.many, again, now); until.Sub(now) != row.want || whole != row.whole {
			t.Errorf("%s: %v, whole %v, want %v, %v", row.why, until.Sub(now), whole, row.want, row.whole)
		}
	}
}

// A backlog is polled as it comes, however little a poll may bring: there is room for no
// more in delayed topics, which share theirs, and where batches are small; and a fetch that
// holds somewhat more than a batch is polled twice.
func TestABacklogIsNoTrickle(t *testing.T) {
	delayed := []SourceTopic{{Name: "t0", Kind: Retry, Delay: time.Second}, {Name: "t1", Kind: Retry, Delay: 2 * time.Minute},
		{Name: "t2", Kind: Retry, Delay: 5 * time.Minute}, {Name: "t3", Kind: Retry, Delay: 30 * time.Minute}, {Name: "t4", Kind: Hold}, {Name: "t5", Kind: Hold}}
	type batch struct{ records, bytes int }
	for _, row := range []struct {
		why        string
		options    SourceOptions
		partitions int
		codec      kgo.CompressionCodec
		records    int
		produced   []batch       // by turns
		within     time.Duration // with a pause after each small poll 10, 2.4, 2.9, 50, 2.1 and 13 s
	}{
		{"delayed topics", SourceOptions{Topics: delayed, Linger: 500 * time.Millisecond}, 18, kgo.SnappyCompression(), 20_200, []batch{{20_200, 600}}, 2 * time.Second},
		{"small batches", SourceOptions{Topics: mainTopic("t0"), Linger: 100 * time.Millisecond, BatchBytes: 128 << 10}, 18, kgo.SnappyCompression(), 20_200, []batch{{20_200, 600}}, 500 * time.Millisecond},
		{"fetches of little more than a batch", SourceOptions{Topics: mainTopic("t0"), Linger: 500 * time.Millisecond, BatchRecords: 1000}, 1, kgo.NoCompression(), 20_200, []batch{{1010, 600}}, time.Second},
		{"values that are too large", SourceOptions{Topics: mainTopic("t0"), Linger: 500 * time.Millisecond}, 1, kgo.NoCompression(), 400, []batch{{1, 900_000}}, time.Second},
		{"small batches, and less than a twentieth of a large one", SourceOptions{Topics: mainTopic("t0"), Linger: 500 * time.Millisecond, BatchBytes: 128 << 10}, 1, kgo.NoCompression(), 450, []batch{{30, 5_000}}, time.Second},
		{"a record and three large ones by turns", SourceOptions{Topics: mainTopic("t0"), Linger: 500 * time.Millisecond}, 1, kgo.NoCompression(), 400, []batch{{1, 0}, {3, 50_000}}, 2 * time.Second},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVirtual(t, kfake.SeedTopics(int32(row.partitions), "t0", "t1", "t2", "t3", "t4", "t5"))
				writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()),
					kgo.ProducerBatchCompression(row.codec))
				if err != nil {
					t.Fatal(err)
				}
				for n, turn := 0, 0; n < row.records; turn++ {
					batch := row.produced[turn%len(row.produced)]
					some := make([]*kgo.Record, batch.records)
					for i := range some {
						some[i] = &kgo.Record{Topic: "t0", Partition: int32(n % row.partitions), Headers: []kgo.RecordHeader{header("pf-v", "1")},
							Value: make([]byte, batch.bytes), Timestamp: time.Now().Add(-time.Minute)}
						n++
					}
					if err := writer.ProduceSync(t.Context(), some...).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				writer.Close()
				row.options.Group, row.options.OpenRecords = "g", 200_000
				s, err := NewSource(v.options(v.network.DialContext), row.options)
				if err != nil {
					t.Fatal(err)
				}
				s.Join()
				if took := v.drained(s, -1, row.records); took > row.within {
					t.Errorf("%d records took %v, want %v at the most", row.records, took, row.within)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// resting is a source that has just polled one record and pauses for a second.
func resting(t *testing.T) *Source {
	v := newVirtual(t)
	s, open := v.joined(v.network.DialContext, func(o *SourceOptions) { o.Linger = 10 * time.Second })
	done(open) // it came by a poll that found less than there was room for
	writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return s
}

// What ends a poll ends a pause: a source that the group has expelled, say, acts on it at once.
func TestAPauseIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := resting(t)
		before := time.Now()
		s.mu.Lock()
		s.reclaim = true
		s.interrupt()
		s.mu.Unlock()
		synctest.Wait()
		s.mu.Lock()
		if s.reclaim || time.Since(before) > 0 {
			t.Errorf("after %v it has not acted on what it was interrupted for", time.Since(before))
		}
		s.mu.Unlock()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Whoever closes a source does not wait until it may poll again.
func TestAPauseEndsWithItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := resting(t)
		before := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took > 100*time.Millisecond {
			t.Errorf("closing took %v", took)
		}
	})
}
