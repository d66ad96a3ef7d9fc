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

	"github.com/pushfleet/pushfleet/push"
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
		if got := new(pace).rests(s, row.came, row.room, nil); got != row.want {
			t.Errorf("%s: %t, want %t", row.why, got, row.want)
		}
	}
}

// What waits in a log counts where it can be fetched: not in a partition that is paused, not
// before the log's end is known, and not at offsets that have no record.
func TestWhatABacklogIs(t *testing.T) {
	s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g"}.withDefaults(), slog.New(slog.DiscardHandler))
	type log struct {
		high, next, committed, empty int64
		paused                       bool
	}
	read := log{1000, 1000, 900, -1, false}
	for _, row := range []struct {
		why     string
		logs    [2]log
		records int
	}{
		{"all is read", [2]log{read, read}, 0},
		{"one is behind", [2]log{{1007, 1000, 900, -1, false}, read}, 7},
		{"both are", [2]log{{1007, 1000, 900, -1, false}, {1004, 1000, 900, -1, false}}, 11},
		{"one is paused", [2]log{{1007, 1000, 900, -1, false}, {9000, 1000, 900, -1, true}}, 7},
		{"one end is not known, and takes nothing from the other's", [2]log{{-1, 1000, 900, -1, false}, {1007, 1000, 900, -1, false}}, 7},
		{"nothing is read yet of what follows a commit", [2]log{{1000, -1, 900, -1, false}, read}, 100},
		{"at the end are markers of transactions", [2]log{{1007, 1000, 900, 1007, false}, read}, 0},
		{"new records are behind such markers", [2]log{{1010, 1000, 900, 1007, false}, read}, 3},
	} {
		s.parts = map[push.Partition]*assignment{}
		paused := map[push.Partition]bool{}
		for i, l := range row.logs {
			a := part(&s.options, int32(i))
			a.high, a.next, a.committed, a.empty = l.high, l.next, l.committed, l.empty
			s.parts[a.partition] = a
			if l.paused {
				paused[a.partition] = true
			}
		}
		s.typical = 300
		if got := s.backlog(paused); got != (amount{row.records, row.records * 300}) {
			t.Errorf("%s: %v, want %d records of 300 bytes", row.why, got, row.records)
		}
	}
}

// A source does not rest before a backlog, as long as that gets less.
func TestABacklogIsNotRestedBefore(t *testing.T) {
	type poll struct {
		came, room, left int
		rests            bool
	}
	const room = 10_000
	for _, row := range []struct {
		why     string
		typical int
		polls   []poll
	}{
		{"a fetch is somewhat larger than a batch", 300, []poll{{room, room, 9010, false}, {10, room, 9000, false}, {room, room, 5010, false}, {10, room, 5000, false}}},
		{"the ends of two partitions, one after the other", 300, []poll{{10, room, 5010, false}, {10, room, 5000, false}, {10, room, 4990, false}}},
		{"little is left", 300, []poll{{10, room, 174, true}, {10, room, 164, true}}},
		{"of a batch", leastTypical, []poll{{10, room, 500, false}}},
		{"of a fetch", 300, []poll{{10, room, 175, false}}},
		{"as much as there is room for", 300, []poll{{10, 60, 60, false}, {10, 60, 59, true}}},
		{"a leader is away: that backlog is not read", 300, []poll{{1, room, 2000, false}, {1, room, 2000, true}, {1, room, 2001, true}, {1, room, 2001, true}, {1, room, 1500, false}}},
		{"it was not read before either, but much else was", 300, []poll{{1, room, 2000, false}, {room, room, 2000, false}, {1, room, 2000, false}}},
	} {
		s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g"}.withDefaults(), slog.New(slog.DiscardHandler))
		s.typical = row.typical
		a := part(&s.options, 0)
		s.parts = map[push.Partition]*assignment{a.partition: a}
		var p pace
		for i, poll := range row.polls {
			a.next, a.high = 1000, 1000+int64(poll.left)
			if got := p.rests(s, amount{poll.came, 100}, poll.room, nil); got != poll.rests {
				t.Errorf("%s: after poll %d it rests: %t, want %t", row.why, i+1, got, poll.rests)
			}
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
		if took := time.Since(began); took > fetchWait+5*recheck {
			t.Errorf("the next batch of the full partition came after %v", took)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A pause is a quarter of the linger, but no partition that must be checked waits for its
// end, and it is never longer than a poll may wait.
func TestHowLongATrickleRests(t *testing.T) {
	now := time.Now()
	for _, row := range []struct {
		why    string
		linger time.Duration
		again  time.Duration // 0 = nothing is to be checked
		want   time.Duration
	}{
		{"by default", 20 * time.Millisecond, 0, 5 * time.Millisecond},
		{"a partition is full", 100 * time.Millisecond, recheck, recheck},
		{"one is due later", 20 * time.Millisecond, time.Minute, 5 * time.Millisecond},
		{"records wait for seconds", 10 * time.Second, 0, time.Second},
	} {
		s := newSource(SourceOptions{Topics: mainTopic("push"), Group: "g", Linger: row.linger}.withDefaults(), slog.New(slog.DiscardHandler))
		var again time.Time
		if row.again > 0 {
			again = now.Add(row.again)
		}
		if got := s.restUntil(again, now).Sub(now); got != row.want {
			t.Errorf("%s: %v, want %v", row.why, got, row.want)
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
				var began time.Time
				for came := 0; came < row.records; {
					b, err := s.Next(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if came == 0 {
						began = time.Now()
					}
					came += len(b.Items)
					done(b)
					if err := s.Commit(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if took := time.Since(began); took > row.within {
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
