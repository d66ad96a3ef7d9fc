package pipeline

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// decide settles what each delivery ends as, once: everything after goes by it.
// A panic over one of them is its end too; the others do not notice.
func (p *Pipeline) decide(group []*Delivery, now time.Time) {
	for _, d := range group {
		if d.abandoned {
			continue
		}
		if caught := p.decideOne(d, now); caught != nil {
			d.ending = Ending{State: push.StateUnknown, Reason: push.Panicked}
			if d.Result.Class == push.Delivered {
				d.ending.State = push.StateDelivered
			}
			p.poisoned(Poisoned{First: caught, Panics: 1})
		}
		if d.ending.State != push.StateDeadLettered {
			d.ticket.Spare()
		}
	}
}

func (p *Pipeline) decideOne(d *Delivery, now time.Time) (caught *push.PanicError) {
	defer func() { caught = push.Recovered("settle", recover()) }()
	switch d.Verdict {
	case push.Undecided:
		d.ending = p.Policy.Decide(&d.Result, d.Item.Attempt, d.Expires, now)
	case push.Duplicate: // its first copy has the outcome
	default:
		d.ending = Ending{State: d.Verdict.State(), Reason: d.Reason}
	}
	return nil
}

// whole reports whether d stands for its whole item, which was decided before
// its devices.
func (d *Delivery) whole() bool {
	return d.Verdict != push.Undecided && d.Item.Verdict != push.Undecided
}

// waits reports whether the row of a delivery must wait for a record that is
// produced before it: a hand-over, or the feedback on a dead token.
func (d *Delivery) waits() bool { return d.ending.HandsOver() || d.Result.Class == push.Gone }

// splitWaiting parts, in place, the deliveries that end here from those that
// wait for a record. An abandoned one waits for nothing.
func splitWaiting(group []*Delivery) (here, waiting []*Delivery) {
	here = group[:0]
	for _, d := range group {
		if d.waits() && !d.abandoned {
			waiting = append(waiting, d)
		} else {
			here = append(here, d)
		}
	}
	return here, waiting
}

// rowsOf are the rows that decided deliveries get. A copy gets none, nor does
// what is another record's by now.
func (p *Pipeline) rowsOf(group []*Delivery, told *Ended, now time.Time) []push.Row {
	rows := make([]push.Row, 0, len(group))
	for _, d := range group {
		if d.abandoned || d.ending.State == 0 {
			continue
		}
		from := len(rows)
		if d.whole() {
			rows = d.Item.verdictRows(rows, now)
		} else {
			rows = append(rows, d.row(d.ending.State, d.ending.Reason, now))
		}
		for i := range rows[from:] {
			told.Add(d.Item, &rows[from+i])
		}
	}
	return rows
}

// verdictRows appends the rows of an item that was decided before its devices:
// one without a device, or for a record that names its devices one for each,
// because a row without a device counts only while no device has one.
func (it *Item) verdictRows(rows []push.Row, now time.Time) []push.Row {
	reason := string(it.Reason)
	if it.Detail != "" {
		reason += ":" + it.Detail
	}
	row := push.Row{ID: it.RowID(), Step: it.Step(), State: it.Verdict.State(), At: now,
		Reason: reason, UserHash: push.UserHash(it.Owner())}
	if len(it.Devices) == 0 {
		return append(rows, row)
	}
	for _, device := range it.Devices {
		row.Device = device
		rows = append(rows, row)
	}
	return rows
}

// row is the status row of one delivery.
func (d *Delivery) row(s push.State, r push.Reason, now time.Time) push.Row {
	return push.Row{ID: d.Item.RowID(), Device: d.Device.Hash, Step: d.Item.Step(), State: s, At: now,
		Platform: d.Route.Platform, ProviderID: d.Result.ProviderID, Reason: string(r), UserHash: push.UserHash(d.Item.Owner())}
}

// handovers are the records to produce before these deliveries may end: one for
// each way on that devices of one item take together, and one for each dead
// token. of has for each delivery the index of its record.
func handovers(group []*Delivery) (hs []Handover, of []int) {
	type way struct {
		item     *Item
		to       Destination
		platform push.Platform
	}
	ways := make(map[way]int, len(group)) // and where in hs its record is
	of = make([]int, len(group))
	for n, d := range group {
		h := d.handover()
		w := way{h.Item, h.To, h.Platform}
		i, known := ways[w]
		if !known || h.To == ToFeedback {
			i = len(hs)
			ways[w] = i
			hs = append(hs, h)
		}
		if h.To != ToFeedback && !d.whole() {
			hs[i].add(d)
		}
		of[n] = i
	}
	return hs, of
}

// destination is where the record goes that d waits for.
func (d *Delivery) destination() Destination {
	switch {
	case d.Result.Class == push.Gone:
		return ToFeedback
	case d.whole() && d.ending.State == push.StateHeld:
		return ToRetry
	case d.whole():
		return ToDLQ
	case d.ending.State == push.StateRetrying:
		return ToRetry
	case d.ending.State == push.StateHeld:
		return ToHold
	}
	return ToDLQ
}

// handover is the record for d alone, as yet without it unless it is whole.
func (d *Delivery) handover() Handover {
	it := d.Item
	h := Handover{To: d.destination(), Item: it, Attempt: it.Attempt, Hops: it.Hops}
	switch {
	case h.To == ToFeedback:
		return Handover{To: ToFeedback, Item: it, Device: d.Device, DeadSince: d.Result.DeadSince, SentAt: d.sentAt, Reason: push.Reason(d.Result.Reason)}
	case d.whole():
		h.Reason, h.Detail, h.Devices = it.Reason, it.Detail, it.Devices
		if h.To == ToRetry {
			h.Hops, h.NotBefore = it.Hops+1, it.NotBefore
		}
	case h.To == ToRetry:
		h.Attempt = it.Attempt + 1
	case h.To == ToHold:
		h.Platform, h.Hops = d.Route.Platform, it.Hops+1
	}
	if h.To != ToDLQ {
		h.State = d.ending.State
	}
	return h
}

// deadLetter makes refused deliveries of a group end in the DLQ, because their
// next record is too large, and parts them from the others. One whose report on
// a dead token was refused stays: it ends here.
func deadLetter(group, refused []*Delivery) (stay, dead []*Delivery) {
	for _, d := range refused {
		if d.Result.Class == push.Gone {
			continue
		}
		d.ending = Ending{State: push.StateDeadLettered, Reason: push.TooLarge}
		if d.whole() {
			d.Item.Verdict, d.Item.Reason, d.Item.Detail = push.Dead, push.TooLarge, ""
		}
		dead = append(dead, d)
	}
	if len(dead) == 0 {
		return group, nil
	}
	for _, d := range group {
		if !slices.Contains(dead, d) {
			stay = append(stay, d)
		}
	}
	return stay, dead
}

// add makes the hand-over cover d too; the latest device says when it is due.
func (h *Handover) add(d *Delivery) {
	e := d.ending
	h.Devices = append(h.Devices, d.Device.Hash)
	h.Reason = e.Reason
	if e.State == push.StateDeadLettered {
		h.Detail = d.Result.Reason // the provider's last word
		if !slices.Contains(h.Providers, d.Route.Platform) {
			h.Providers = append(h.Providers, d.Route.Platform)
		}
	}
	if e.NotBefore.After(h.NotBefore) {
		h.NotBefore = e.NotBefore
	}
}

// seenIDs are the ids that the filter is to remember. A record without a
// usable id has nothing to be seen by, and a reused id belongs to another.
func seenIDs(items []*Item) []string {
	ids := make([]string, 0, len(items))
	for _, it := range items {
		if it.ID != "" && it.Reason != push.IDReused {
			ids = append(ids, it.ID)
		}
	}
	return ids
}

// splitAbandoned parts the items that have a delivery without a durable end
// from the others, in place.
func splitAbandoned(items []*Item) (ended, abandoned []*Item) {
	ended = items[:0]
	for _, it := range items {
		if atomic.LoadUint32(&it.abandoned) != 0 {
			abandoned = append(abandoned, it)
		} else {
			ended = append(ended, it)
		}
	}
	return ended, abandoned
}

// leaving reports whether the item's partition leaves.
func (it *Item) leaving() bool { return it.batch.Tracker.Draining() }

// splitLeaving parts the items whose partition leaves from the others.
func splitLeaving(items []*Item) (stay, leave []*Item) {
	for _, it := range items {
		if it.leaving() {
			leave = append(leave, it)
		} else {
			stay = append(stay, it)
		}
	}
	return stay, leave
}

// forTrackers calls mark once for each tracker with its items.
func forTrackers(items []*Item, mark func(*Tracker, []*Item)) {
	of := make(map[*Tracker][]*Item)
	for _, it := range items {
		of[it.batch.Tracker] = append(of[it.batch.Tracker], it)
	}
	for t, its := range of {
		mark(t, its)
	}
}

// ending counts items whose rows are durable. Those whose devices are all
// another record's by now end as a copy.
func (p *Pipeline) ending(items []*Item) {
	told := p.Events.Group(p.Lane)
	for _, it := range items {
		if it.Verdict == push.Undecided && it.claimed() {
			it.Decide(push.Duplicate, "", "")
		}
		if it.Verdict == push.Duplicate && !it.Reread {
			told.Duplicate(it)
		}
	}
	told.Count(time.Now())
	p.Metrics.ended(p.Lane, items)
}

// claimed reports whether all that it was to be sent to is another record's.
func (it *Item) claimed() bool {
	for j := range it.Deliveries {
		if it.Deliveries[j].Result.Class != push.Claimed {
			return false
		}
	}
	return len(it.Deliveries) > 0
}

// anyLeaving reports whether the partition of one of the items is leaving.
func anyLeaving(items []*Item) bool {
	for _, it := range items {
		if it.leaving() {
			return true
		}
	}
	return false
}
