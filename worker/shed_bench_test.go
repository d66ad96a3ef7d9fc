//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/bench/usage"
	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/decode"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/status"
	"github.com/pushfleet/pushfleet/wiring"
)

// flood is a lane's partition that has far more than may wait: a source of decoded
// batches, where its log ends, and who takes whatever the pipeline hands on.
type flood struct {
	values  [][]byte
	tracker *pipeline.Tracker
	batches int // that are still to come
	next    int64
	b       *testing.B
}

const floodBatch = 10_000

func (f *flood) Next(ctx context.Context) (*pipeline.Batch, error) {
	for f.batches > 0 && f.tracker.Free() < floodBatch {
		time.Sleep(time.Millisecond) // until the next commit
	}
	if f.batches == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.batches--
	now := time.Now()
	batch := &pipeline.Batch{Partition: f.tracker.Partition(), Tracker: f.tracker, Items: make([]pipeline.Item, floodBatch)}
	for i := range batch.Items {
		it := &batch.Items[i]
		it.Partition, it.Offset, it.Timestamp, it.FirstSeen, it.Value = batch.Partition, f.next, now, now, f.values[f.next%int64(len(f.values))]
		if defect := decode.Message(it.Value, &it.Message); defect != nil {
			f.b.Error(defect)
		}
		f.next++
	}
	f.tracker.Admit(batch)
	return batch, nil
}

func (f *flood) Commit(context.Context) error {
	if next, ok := f.tracker.Watermark(); ok {
		f.tracker.Committed(next)
	}
	return nil
}

func (f *flood) End(push.Partition) (int64, int, bool)                { return 1 << 40, 1, true }
func (f *flood) Pace() ([]int64, float64)                             { return []int64{1 << 40}, 1e4 }
func (f *flood) Produce(context.Context, []pipeline.Handover) error   { return nil }
func (f *flood) Read(context.Context, []string) ([][]push.Row, error) { return nil, nil }
func (f *flood) Add(context.Context, []string) error                  { return nil }
func (f *flood) Submit(context.Context, []*pipeline.Delivery, func([]*pipeline.Delivery)) (int, error) {
	panic("what is shed is sent")
}

// discarded is a status store that only counts, and says where rows would be.
type discarded struct {
	*status.Memory
	groups, rows atomic.Int64
}

func (d *discarded) Write(_ context.Context, rows []push.Row) error {
	d.groups.Add(1)
	d.rows.Add(int64(len(rows)))
	return nil
}

// BenchmarkShedRecords is what a record costs that is shed, from its decoding to its row,
// its event and the commit: all but Kafka, the filter in Redis and the row's way to
// Cassandra, which a record that is sent has too. The processor time is that of all
// goroutines.
func BenchmarkShedRecords(b *testing.B) {
	memory, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		b.Fatal(err)
	}
	values := make([][]byte, 4*floodBatch)
	for i := range values {
		if values[i], err = json.Marshal(map[string]any{"id": fmt.Sprintf("0199f3c2-8a00-7b11-8c22-%012d", i), "app": "shop", "user_id": fmt.Sprint("u", i), "type": "news",
			"priority": "bulk", "title": "News of the day", "body": "Something has happened, and something else has not."}); err != nil {
			b.Fatal(err)
		}
	}
	const batches = 50
	b.ReportAllocs()
	records, took := 0.0, time.Duration(0)
	for b.Loop() {
		rows, cpu := shedAll(b, memory, values, batches)
		if rows.rows.Load() != batches*floodBatch {
			b.Fatalf("%d rows of %d records", rows.rows.Load(), batches*floodBatch)
		}
		records, took = records+batches*floodBatch, took+cpu
		b.ReportMetric(float64(rows.rows.Load())/float64(rows.groups.Load()), "rows/write")
	}
	b.ReportMetric(float64(took.Microseconds())/records, "cpu-us/record")
}

// shedAll has a pipeline shed so many batches.
func shedAll(b *testing.B, memory *status.Memory, values [][]byte, batches int) (*discarded, time.Duration) {
	b.StopTimer()
	runtime.GC()
	rows := &discarded{Memory: memory}
	f := &flood{values: values, batches: batches, b: b,
		tracker: pipeline.NewTracker(pipeline.TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 4 * floodBatch, Expiries: true})}
	metrics, told := pipeline.NewMetrics(prometheus.NewRegistry()), events.New("worker", time.Now())
	metrics.Sheds("promotional")
	c := configs.Default()
	p, err := pipeline.New(pipeline.Options{
		Lane: "promotional", Source: f, Producer: f, Status: rows, Ledger: f, Seen: f, Events: told, EarliestFirst: true,
		Stages: []pipeline.Stage{&stages.Accept{Apps: map[string]bool{"shop": true}, GreatestAge: time.Hour, DefaultPriority: push.Low},
			stages.NewShed(stages.Thresholds{push.High: 4, push.Medium: 3, push.Low: 2, push.Bulk: 1}, f, f)},
		Routes: map[push.Route]pipeline.Provider{{Platform: push.APNS, App: "shop"}: f}, Policy: wiring.Policy(c, c.Lanes[2]),
		StageWorkers: c.Batch.Workers, Window: 45_000, SendDeadline: c.Send.Deadline, Drain: c.Send.Drain, StatusTimeout: c.Cassandra.Timeout,
		CommitTimeout: c.Kafka.CommitTimeout, CommitInterval: 10 * time.Millisecond, Metrics: metrics, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	before, err := usage.OwnCPU()
	if err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
	running.Go(func() {
		if err := p.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	for rows.rows.Load() < int64(batches*floodBatch) {
		time.Sleep(10 * time.Millisecond)
		told.Take(time.Now()) // as tellEvents does, if less often
	}
	stop()
	running.Wait()
	after, err := usage.OwnCPU()
	if err != nil {
		b.Fatal(err)
	}
	return rows, after - before
}
