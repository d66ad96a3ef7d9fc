//go:build linux

package stress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
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

const (
	floodBatch = 10_000
	// floodValues are the different records there are, which come again and again.
	floodValues = 4 * floodBatch
)

// flood is a lane's partition that has far more than may wait: a source of decoded
// batches, where its log ends, and who takes whatever the pipeline hands on.
type flood struct {
	values  [][]byte
	tracker *pipeline.Tracker
	batches int // that are still to come
	next    int64
}

func (f *flood) Next(ctx context.Context) (*pipeline.Batch, error) {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for f.batches > 0 && f.tracker.Free() < floodBatch { // until the next commit
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.batches == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	f.batches--
	at := push.At(time.Now())
	batch := &pipeline.Batch{Partition: f.tracker.Partition(), Tracker: f.tracker, Items: make([]pipeline.Item, floodBatch)}
	for i := range batch.Items {
		it := &batch.Items[i]
		it.Partition, it.Offset, it.Timestamp, it.FirstSeen, it.Value = batch.Partition, f.next, at, at, f.values[f.next%int64(len(f.values))]
		if defect := decode.Message(it.Value, &it.Message); defect != nil {
			return nil, fmt.Errorf("a record of the bench: %w", defect)
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
	return 0, errors.New("what is shed is sent")
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

// shed measures what a record costs that is shed, from its decoding to its row, its event
// and the commit: all but Kafka, the filter in Redis and the row's way to Cassandra, which a
// record that is sent has too. The processor time is that of all goroutines.
func shed(ctx context.Context, o *Options, r *Result) error {
	if o.Shed == 0 {
		return nil
	}
	o.Progress("%d records of a lane that sheds", o.Shed)
	memory, err := status.NewMemory(status.DefaultLayouts())
	if err != nil {
		return err
	}
	f := &flood{values: make([][]byte, floodValues), batches: (o.Shed + floodBatch - 1) / floodBatch,
		tracker: pipeline.NewTracker(pipeline.TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 4 * floodBatch, Expiries: true})}
	for i := range f.values {
		if f.values[i], err = json.Marshal(map[string]any{"id": fmt.Sprintf("0199f3c2-8a00-7b11-8c22-%012d", i), "app": "shop", "user_id": fmt.Sprint("u", i), "type": "news",
			"priority": "bulk", "title": "News of the day", "body": "Something has happened, and something else has not."}); err != nil {
			return fmt.Errorf("making records: %w", err)
		}
	}
	all := int64(f.batches) * floodBatch
	runtime.GC()
	rows := &discarded{Memory: memory}
	took, cpu, err := shedAll(ctx, f, rows, all)
	if err != nil {
		return err
	}
	r.Shed = all
	r.ShedRate = float64(all) / took.Seconds()
	r.ShedCPU = float64(cpu.Microseconds()) / float64(all)
	r.ShedRows = float64(rows.rows.Load()) / float64(rows.groups.Load())
	return nil
}

// CompareWithAPNS2 sets what a shed record takes of apns2's push, in us of the same session; nil = unknown.
func (r *Result) CompareWithAPNS2(cpu *float64) {
	r.APNS2CPU = cpu
	if cpu != nil && *cpu > 0 && r.Shed > 0 {
		share := r.ShedCPU / *cpu
		r.ShedOfAPNS2 = &share
	}
}

// shedAll has a pipeline shed all that f has, and says what it took.
func shedAll(ctx context.Context, f *flood, rows *discarded, all int64) (took, cpu time.Duration, err error) {
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
		return 0, 0, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	before, err := usage.OwnCPU()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	ended := make(chan error, 1)
	var run sync.WaitGroup
	run.Go(func() { ended <- p.Run(running) })
	defer run.Wait()
	defer stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for rows.rows.Load() < all {
		select {
		case <-ctx.Done():
			return 0, 0, context.Cause(ctx)
		case err := <-ended:
			return 0, 0, fmt.Errorf("the pipeline ended after %d of %d rows: %w", rows.rows.Load(), all, err)
		case <-ticker.C:
			told.Take(time.Now()) // as a worker does, if less often
		}
	}
	took = time.Since(began)
	stop()
	run.Wait()
	after, err := usage.OwnCPU()
	if err != nil {
		return 0, 0, err
	}
	return took, after - before, nil
}
