package stages

import (
	"context"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
)

// Filter is the Bloom filter of finished ids. Check sets maybe[i] where ids[i]
// may have been finished before; where it does not, the id certainly was not.
type Filter interface {
	Check(ctx context.Context, ids []string, maybe []bool) error
}

// Ledger is the confirm read: the status rows of ids, aligned with them. It
// answers only what is durable, and an error when it cannot tell.
type Ledger interface {
	Read(ctx context.Context, ids []string) ([][]pipeline.Row, error)
}

// Dedupe ends second copies. The filter only says whom to ask about: nothing
// but the status store ends an item here, so a filter that is full, wiped or
// wrong never drops a notification.
type Dedupe struct {
	Filter Filter
	Ledger Ledger
}

// Name implements pipeline.Stage.
func (*Dedupe) Name() string { return "dedupe" }

// Apply asks the filter about every item that is not to be confirmed anyway,
// and the ledger about those and all that the filter may know.
func (s *Dedupe) Apply(ctx context.Context, b *pipeline.Batch) error {
	items := b.Undecided(make([]*pipeline.Item, 0, len(b.Items)))
	confirm, ask := items[:0:0], make([]*pipeline.Item, 0, len(items))
	for _, it := range items {
		if it.Confirm || it.Reread {
			confirm = append(confirm, it)
		} else {
			ask = append(ask, it)
		}
	}
	maybe := make([]bool, len(ask))
	if len(ask) > 0 {
		if err := s.Filter.Check(ctx, idsOf(ask), maybe); err != nil {
			return fmt.Errorf("asking the filter: %w", err)
		}
	}
	for i, it := range ask {
		if maybe[i] {
			confirm = append(confirm, it)
		}
	}
	if len(confirm) == 0 {
		return nil
	}
	asked := time.Now()
	rows, err := s.Ledger.Read(ctx, idsOf(confirm))
	if err != nil {
		return fmt.Errorf("reading the status of ids that may be copies: %w", err)
	}
	for i, it := range confirm {
		it.Confirmed = asked
		judge(it, rows[i])
	}
	return nil
}

func idsOf(items []*pipeline.Item) []string {
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.ID
	}
	return ids
}

// judge decides an item by the rows of its id. What it leaves undecided
// carries its history, by which the devices that are closed are left out. An
// intent without a result ends UNKNOWN, and all of the item with it: a batch's
// intents were durable before any of it was sent, so what has none was never
// sent, and a lane of intents rather loses that than to send twice.
func judge(it *pipeline.Item, rows []pipeline.Row) {
	own, others := pipeline.OwnRows(rows, pipeline.UserHash(it.Owner()))
	h := &pipeline.History{Rows: own}
	if intents := h.Intents(it.Step()); len(intents) > 0 {
		it.Devices = intents
		it.Decide(pipeline.Unresolved, pipeline.IntentLost, "")
		return
	}
	if it.Reread {
		it.Decide(pipeline.Duplicate, "", "") // committed, and it has its results
		return
	}
	if len(own) == 0 && others {
		it.Decide(pipeline.Dead, pipeline.IDReused, "")
		return
	}
	if orphan(it, h) {
		it.Decide(pipeline.Deferred, pipeline.Unclaimed, "")
		return
	}
	if len(own) == 0 {
		return
	}
	if h.ClosedWhole(it.Step(), it.Redrive > 0) || namedClosed(it, h) {
		it.Decide(pipeline.Duplicate, "", "")
		return
	}
	it.History = h
}

// orphan reports whether the row is missing that says this record was handed
// over to. Then whoever produced it was stopped in between, and the record it
// came from may be under way again, by an owner that found nothing either. Both
// would be sent. So this one claims the devices first, with a row of its own
// that closes the earlier record, and waits for another tier: by then what was
// under way has its row, and the confirm read of the next copy sees it. A
// redriven record needs no such row, since an operator made it; its retries do.
func orphan(it *pipeline.Item, h *pipeline.History) bool {
	if it.Step() == 0 || it.Redrive > 0 && it.Attempt == 0 {
		return false
	}
	devices := it.Devices
	if len(devices) == 0 {
		devices = []string{""}
	}
	for _, d := range devices {
		if !h.HandedOverTo(d, it.Step()) && !h.Closed(d, it.Step(), it.Redrive > 0) {
			return true
		}
	}
	return false
}

// namedClosed reports whether the record names its devices and all are closed,
// and nothing is left to say of them.
func namedClosed(it *pipeline.Item, h *pipeline.History) bool {
	for _, d := range it.Devices {
		if _, _, overtaken := h.Overtaken(d, it.Step()); overtaken || !h.Closed(d, it.Step(), it.Redrive > 0) {
			return false
		}
	}
	return len(it.Devices) > 0
}
