//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chaos/records"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// marks reads the marks of transactions in the lane's topic, whoever wrote them:
// offsets that no record has.
type marks struct {
	strangers *strangers
	reader    *kgo.Client
	reading   sync.WaitGroup
	stop      context.CancelFunc
	mu        sync.Mutex
	read      map[int32]int64 // guarded by mu; the next offset of each partition
	seen      int             // guarded by mu; marks so far
}

func newMarks(w *world, s *strangers) (*marks, error) {
	reader, err := w.kafkaClient(kgo.ConsumeTopics(fleet.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("marks of transactions: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &marks{strangers: s, reader: reader, stop: stop, read: map[int32]int64{}}
	m.reading.Go(func() { m.readMarks(ctx) })
	return m, nil
}

// readMarks tells the producer's ledger of every mark, until ctx ends.
func (m *marks) readMarks(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := m.reader.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Attrs.IsControl() {
				m.strangers.producer.noteMark(invariants.Partition{Topic: r.Topic, ID: r.Partition}, r.Offset)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if r.Attrs.IsControl() {
				m.seen++
			}
			m.read[r.Partition] = r.Offset + 1
		})
	}
}

// awaitRead waits until everything up to an offset of a partition is read.
func (m *marks) awaitRead(ctx context.Context, partition int32, to int64) error {
	for {
		m.mu.Lock()
		next := m.read[partition]
		m.mu.Unlock()
		if next >= to || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hold(ctx, 20*time.Millisecond)
	}
}

func (m *marks) close() {
	m.stop()
	m.reading.Wait()
	m.reader.Close()
}

// cover appends a record behind the last mark of each partition: nobody commits
// an offset that no record stands before.
func (m *marks) cover(ctx context.Context) error {
	client, err := m.strangers.world.kafkaClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(largestBatch))
	if err != nil {
		return fmt.Errorf("marks of transactions: %w", err)
	}
	defer client.Close()
	var errs []error
	for p := range int32(partitions) {
		a := m.strangers.next()
		for a.Want.Copy || a.Want.Reason == records.IDReused {
			a = m.strangers.next() // it belongs behind an earlier record, in the partition of its key
		}
		r := m.strangers.record(&a.Record)
		r.Topic, r.Partition = fleet.Topic, p
		got, err := client.ProduceSync(ctx, r).First()
		m.strangers.acknowledged(&a, got, err)
		if err == nil {
			err = m.awaitRead(ctx, p, got.Offset+1)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
