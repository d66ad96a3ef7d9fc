//go:build unix

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transactions appends records in transactions, of which some are aborted: in
// each partition that one touched, its mark takes an offset that no record has.
// Workers read uncommitted (docs/delivery.md), so what was aborted is sent as
// well.
type transactions struct {
	*marks
	client *kgo.Client
	draw   *rand.Rand
	open   []appended
	size   int // of the open one when it is full
}

// largestTransaction is the most records of one.
const largestTransaction = 40

func newTransactions(w *world, s *strangers, seed uint64) (*transactions, error) {
	client, err := w.kafkaClient(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.TransactionalID("chaos"), kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(largestRecord))
	if err != nil {
		return nil, fmt.Errorf("transactions: %w", err)
	}
	read, err := newMarks(w, s)
	if err != nil {
		client.Close()
		return nil, err
	}
	t := &transactions{marks: read, client: client, draw: rand.New(rand.NewPCG(seed, 0x7472616e73))}
	t.size = 1 + t.draw.IntN(largestTransaction)
	return t, nil
}

func (t *transactions) close() {
	t.marks.close()
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
