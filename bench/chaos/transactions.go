//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/fleet"
)

// transactions appends records in transactions, of which some are aborted: in
// each partition that one touched, its mark takes an offset that no record has.
// Workers read uncommitted (docs/delivery.md), so what was aborted is sent as
// well.
type transactions struct {
	strangers *strangers
	client    *kgo.Client
	draw      *rand.Rand
	open      []appended
	size      int // of the open one when it is full

	reader  *kgo.Client // of the lane's topic, for its marks
	reading sync.WaitGroup
	stop    context.CancelFunc
	mu      sync.Mutex
	read    map[int32]int64 // guarded by mu; the next offset of each partition
}

// largestTransaction is the most records of one.
const largestTransaction = 40

func newTransactions(w *world, s *strangers, seed uint64) (*transactions, error) {
	client, err := w.kafkaClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.TransactionalID("chaos"), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(largestRecord))
	if err != nil {
		return nil, fmt.Errorf("transactions: %w", err)
	}
	reader, err := w.kafkaClient(kgo.ConsumeTopics(fleet.Topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("transactions: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	t := &transactions{strangers: s, client: client, draw: rand.New(rand.NewPCG(seed, 0x7472616e73)), reader: reader, stop: stop, read: map[int32]int64{}}
	t.size = 1 + t.draw.IntN(largestTransaction)
	t.reading.Go(func() { t.readMarks(ctx) })
	return t, nil
}

// readMarks tells the producer's ledger of every mark, until ctx ends.
func (t *transactions) readMarks(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := t.reader.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Attrs.IsControl() {
				t.strangers.producer.noteMark(invariants.Partition{Topic: r.Topic, ID: r.Partition}, r.Offset)
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.read[r.Partition] = r.Offset + 1
		})
	}
}

// awaitRead waits until everything up to an offset of a partition is read.
func (t *transactions) awaitRead(ctx context.Context, partition int32, to int64) error {
	for {
		t.mu.Lock()
		next := t.read[partition]
		t.mu.Unlock()
		if next >= to || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		hold(ctx, 20*time.Millisecond)
	}
}

func (t *transactions) close() {
	t.stop()
	t.reading.Wait()
	t.reader.Close()
	t.client.Close()
}

// add puts a record into the open transaction, and appends it when it is full.
func (t *transactions) add(ctx context.Context, a appended) error {
	if t.open = append(t.open, a); len(t.open) < t.size {
		return nil
	}
	return t.end(ctx)
}

// end appends the open transaction, and commits or aborts it.
func (t *transactions) end(ctx context.Context) error {
	full := t.open
	t.open, t.size = nil, 1+t.draw.IntN(largestTransaction)
	if len(full) == 0 {
		return nil
	}
	if err := t.client.BeginTransaction(); err != nil {
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	for i := range full {
		t.client.Produce(ctx, t.strangers.record(&full[i].Record), func(got *kgo.Record, err error) { t.strangers.acknowledged(&full[i], got, err) })
	}
	if err := t.client.Flush(ctx); err != nil {
		return fmt.Errorf("a transaction of %d records: %w", len(full), err)
	}
	commit := kgo.TransactionEndTry(t.draw.IntN(3) > 0)
	if err := t.client.EndTransaction(ctx, commit); err != nil {
		return fmt.Errorf("ending a transaction (commit: %v): %w", bool(commit), err)
	}
	return nil
}

// cover appends a record behind the last mark of each partition: nobody commits
// an offset that no record stands before.
func (t *transactions) cover(ctx context.Context) error {
	client, err := t.strangers.world.kafkaClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(largestBatch))
	if err != nil {
		return fmt.Errorf("transactions: %w", err)
	}
	defer client.Close()
	var errs []error
	for p := range int32(partitions) {
		a := t.strangers.next()
		r := t.strangers.record(&a.Record)
		r.Topic, r.Partition = fleet.Topic, p
		got, err := client.ProduceSync(ctx, r).First()
		t.strangers.acknowledged(&a, got, err)
		if err == nil {
			err = t.awaitRead(ctx, p, got.Offset+1)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
