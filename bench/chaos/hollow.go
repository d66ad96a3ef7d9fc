//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/pushfleet/pushfleet/bench/fleet"
)

// hollow ends transactions that have no records, so that their marks take offsets
// between those of the producer. Whether Kafka has taken a transaction need not be
// known: its marks are read. So it may go on while Kafka is broken.
type hollow struct {
	*marks
	client *kgo.Client
	draw   *rand.Rand // of the goroutine of run
	making sync.WaitGroup
	enough context.CancelFunc
}

func newHollow(ctx context.Context, w *world, s *strangers, seed uint64) (*hollow, error) {
	// Later protocols open a partition of a transaction with its first record.
	client, err := w.kafkaClient(kgo.MaxVersions(kversion.V3_0_0()))
	if err != nil {
		return nil, fmt.Errorf("hollow transactions: %w", err)
	}
	read, err := newMarks(w, s)
	if err != nil {
		client.Close()
		return nil, err
	}
	ctx, enough := context.WithCancel(ctx)
	h := &hollow{marks: read, client: client, draw: rand.New(rand.NewPCG(seed, 0x686f6c6c6f77)), enough: enough}
	h.making.Go(func() {
		for ctx.Err() == nil {
			_ = h.transaction(ctx) // the next one begins anew
			hold(ctx, millis(h.draw, 200*time.Millisecond, time.Second))
		}
	})
	return h, nil
}

const hollowID = "chaos-hollow"

// begin fences what was open before. When it returns nil, the marks of that are
// written, and none comes any more.
func (h *hollow) begin(ctx context.Context) (id int64, epoch int16, err error) {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID, r.TransactionTimeoutMillis = kmsg.StringPtr(hollowID), 60_000
	got, err := r.RequestWith(ctx, h.client)
	if err == nil {
		err = kerr.ErrorForCode(got.ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("beginning a hollow transaction: %w", err)
	}
	return got.ProducerID, got.ProducerEpoch, nil
}

// transaction touches some partitions and commits or aborts.
func (h *hollow) transaction(ctx context.Context) error {
	id, epoch, err := h.begin(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = hollowID, id, epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic = fleet.Topic
	for p := range int32(partitions) {
		if h.draw.IntN(2) == 0 {
			topic.Partitions = append(topic.Partitions, p)
		}
	}
	add.Topics = append(add.Topics, topic)
	if _, err := add.RequestWith(ctx, h.client); err != nil { // what it refused shows in the marks
		return fmt.Errorf("partitions of a hollow transaction: %w", err)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = hollowID, id, epoch, h.draw.IntN(3) > 0
	if _, err := end.RequestWith(ctx, h.client); err != nil {
		return fmt.Errorf("ending a hollow transaction: %w", err)
	}
	return nil
}

// end waits until no mark comes any more. That there were none is an error.
func (h *hollow) end(ctx context.Context) error {
	h.enough()
	h.making.Wait()
	for {
		if _, _, err := h.begin(ctx); err == nil {
			break
		}
		if hold(ctx, 200*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := h.cover(ctx); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == 0 {
		return errors.New("hollow transactions left no mark")
	}
	return nil
}

func (h *hollow) close() {
	h.enough()
	h.making.Wait()
	h.marks.close()
	h.client.Close()
}
