package kafka

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// idle returns a source whose records are all committed, and who writes more. Who asked for them
// closes both.
func (v *virtual) idle(change func(*SourceOptions)) (*Source, *kgo.Client) {
	v.t.Helper()
	s, open := v.joined(v.network.DialContext, change)
	done(open)
	if err := s.Commit(v.t.Context()); err != nil {
		v.t.Fatal(err)
	}
	writer, err := kgo.NewClient(kgo.SeedBrokers(v.ListenAddrs()...), kgo.Dialer(v.network.DialContext), kgo.ProducerLinger(0))
	if err != nil {
		v.t.Fatal(err)
	}
	return s, writer
}

// Records that follow a backlog closely, the last one while the client holds the one before, wait
// for little more than a linger: rests stay short for as long.
func TestRecordsBehindABacklogWaitForOneLinger(t *testing.T) {
	const linger = 800 * time.Millisecond
	for _, gap := range []time.Duration{2, 20, 50, 100, 150, 190, 250, 400} {
		synctest.Test(t, func(t *testing.T) {
			v := newVirtual(t)
			s, writer := v.idle(func(o *SourceOptions) { o.Linger, o.BatchRecords = linger, 200 })
			defer writer.Close()
			time.Sleep(5 * time.Second)
			written := make(map[int64]time.Time)
			put := func(n int) {
				rs := make([]*kgo.Record, n)
				for i := range rs {
					rs[i] = &kgo.Record{Topic: "push", Value: []byte("{}")}
				}
				if err := writer.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				for _, r := range rs {
					written[r.Offset] = time.Now()
				}
			}
			put(50) // more than a trickle
			synctest.Wait()
			put(1)
			synctest.Wait()
			put(1) // the client holds what came: it rests for a quarter
			synctest.Wait()
			time.Sleep(gap * time.Millisecond)
			put(1)
			var worst time.Duration
			for n := 0; n < 53; {
				b, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, it := range itemsOf(b) {
					worst = max(worst, time.Since(written[it.Offset]))
				}
				n += len(b.Items)
				done(b)
			}
			if worst > linger*5/4+50*time.Millisecond {
				t.Errorf("gap %v: a record waited %v, %.2f lingers", gap*time.Millisecond, worst, float64(worst)/float64(linger))
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where a window is one batch, records that come one by one wait for a linger at the most, too,
// while those before them are not committed.
func TestRecordsOneByOneInAWindowOfOneBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const linger = 20 * time.Millisecond
		v := newVirtual(t)
		s, writer := v.idle(func(o *SourceOptions) { o.Linger, o.BatchRecords, o.OpenBatches = linger, 200, 1 })
		defer writer.Close()
		defer func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		for i := range 200 / few {
			time.Sleep(3 * linger)
			if err := writer.ProduceSync(t.Context(), &kgo.Record{Topic: "push", Value: []byte("{}")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), linger+time.Millisecond)
			defer cancel()
			b, err := s.Next(ctx)
			if err != nil {
				t.Fatalf("record %d waits for more than a linger behind as many that are open: %v", i, err)
			}
			defer done(b)
		}
	})
}
