package stages

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// Filter is the Bloom filter of finished ids. Check sets maybe[i] where ids[i]
// may have been finished before; where it does not, the id certainly was not,
// unless that was before the Horizon of a time after the Check.
type Filter interface {
	Check(ctx context.Context, ids []string, maybe []bool) error
	Horizon(now time.Time) time.Time
}

// Dedupe ends second copies. The filter only says which ids to ask about:
// nothing but the status store ends an item here, so a filter that is full,
// wiped or wrong never drops a notification. And it is believed only about
// items that it would still remember: see remembers.
type Dedupe struct {
	Filter Filter
	Ledger pipeline.Ledger
	// ConfirmAll: a filter that cannot be asked says maybe of every id, so that the lane
	// goes on, at the cost of a confirm read each. Else the batch waits for it.
	ConfirmAll bool
}

// Name implements pipeline.Stage.
func (*Dedupe) Name() pipeline.Step { return StepDedupe }

// Apply asks the filter about every item that is not to be confirmed anyway,
// and the ledger about those and all that may be in the filter.
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
		err := s.Filter.Check(ctx, idsOf(ask), maybe)
		switch {
		case err == nil:
		case !s.ConfirmAll || ctx.Err() != nil:
			return fmt.Errorf("querying the dedupe filter: %w", err)
		default:
			confirm, ask = append(confirm, ask...), nil
		}
	}
	now := time.Now() // after the Check: its windows were those of now, or older ones
	since := s.Filter.Horizon(now)
	needs := func(i int) byte { return push.Ends(ask[i].ID) + byte(ask[i].FirstSeen) }
	for i := range push.Prefetching(len(ask), needs) {
		if it := ask[i]; maybe[i] || !remembers(it, since, now) {
			confirm = append(confirm, it)
		}
	}
	if len(confirm) == 0 {
		return nil
	}
	asked := pipeline.UptimeAt(time.Now())
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

// timeSlack is by how much the clocks of producers and brokers may be ahead.
const timeSlack = time.Minute

// remembers reports whether a filter that has forgotten everything finished
// before since would still know this item if it had been finished, because the
// item did not exist before since. The evidence is when it was first seen and,
// in a UUIDv7, when it was minted; times later than the record itself, or than
// now, are ignored. An id without a time that is written again in a new record
// looks new; of those that gateways derive from their callers' keys it is known that
// they may be repeated after any time.
func remembers(it *pipeline.Item, since, now time.Time) bool {
	latest := now
	if written := it.Timestamp.Time(); written.Before(now) {
		latest = written
	}
	latest = latest.Add(timeSlack)
	credible := func(at time.Time) bool { return !at.Before(since) && !at.After(latest) }
	minted, known := push.MintedAt(it.ID)
	return credible(it.FirstSeen.Time()) && (!known || credible(minted)) && !push.DerivedID(it.ID)
}

func idsOf(items []*pipeline.Item) []string {
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.ID
	}
	return ids
}

// judge decides an item by the rows of its id. What it leaves undecided carries
// its history, by which the devices that are closed are left out. An intent
// without a result ends UNKNOWN, and all of the item with it: a batch's intents
// were durable before any of it was sent, so a device without an intent was
// never sent to, and an at_most_once lane would rather lose that send than
// repeat it.
func judge(it *pipeline.Item, rows []push.Row) {
	own, others := push.OwnRows(rows, push.UserHash(it.Owner()))
	it.Ended = it.EndedBefore(own)
	h := push.NewHistory(own)
	if len(own) > 0 {
		it.History = h // also of a copy, whose sender may not have been told
	}
	if lost := lostIntents(it, h); len(lost) > 0 {
		it.Devices = lost
		it.Decide(push.Unresolved, push.IntentLost, "")
		return
	}
	if it.Reread {
		it.Decide(push.Duplicate, "", "") // committed, and it has its results
		return
	}
	if len(own) == 0 && others {
		it.Decide(push.Dead, push.IDReused, "")
		return
	}
	if handedElsewhere(it, h) {
		it.Decide(push.Duplicate, "", "")
		return
	}
	if orphan(it, h) {
		it.Decide(push.Deferred, push.Unclaimed, "")
		return
	}
	if len(own) == 0 {
		return
	}
	if h.ClosedWhole(it.Step(), it.Redrive > 0) || namedClosed(it, h) {
		it.Decide(push.Duplicate, "", "")
	}
}

// lostIntents are the devices whose intent has no result. A record that names
// its devices ignores intents for others: those belong to another record of the
// same step, in the hold topic of another provider, and may be in flight.
func lostIntents(it *pipeline.Item, h *push.History) []string {
	intents := h.Intents(it.Step())
	if len(it.Devices) == 0 {
		return intents
	}
	if !slices.ContainsFunc(it.Devices, func(d string) bool { return slices.Contains(intents, d) }) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(it.Devices), func(d string) bool { return h.Closed(d, it.Step(), it.Redrive > 0) })
}

// handedElsewhere leaves out the devices that another record of this step has,
// and reports whether that is all of them. Such a pair arises when a worker
// dies between a hand-over and its row, and the next owner hands over to
// another topic, for example because the failing route is stopped by then. Both
// records find the row of the second hand-over, and if they are due at the same
// time neither finds what the other has sent.
func handedElsewhere(it *pipeline.Item, h *push.History) bool {
	if len(it.Devices) == 0 {
		return h.HandedElsewhere("", it.Step(), it.HandedAs)
	}
	it.Devices = slices.DeleteFunc(slices.Clone(it.Devices), func(d string) bool { return h.HandedElsewhere(d, it.Step(), it.HandedAs) })
	return len(it.Devices) == 0
}

// orphan reports whether the row is missing that tells of the hand-over to this
// record. Then its producer died between the two, and the origin may be in
// progress again, by an owner that found no row either. Both would be sent. So
// this record first claims the devices, with a row of its own that closes the
// origin, and waits for another tier: by then a send in progress has its row,
// and the confirm read of the next copy sees it. A redriven record needs no
// such row, since an operator made it; its retries do.
func orphan(it *pipeline.Item, h *push.History) bool {
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

// namedClosed reports whether the record names its devices, all are closed, and
// no row is left to write for them.
func namedClosed(it *pipeline.Item, h *push.History) bool {
	for _, d := range it.Devices {
		if _, _, overtaken := h.Overtaken(d, it.Step()); overtaken || !h.Closed(d, it.Step(), it.Redrive > 0) {
			return false
		}
	}
	return len(it.Devices) > 0
}
