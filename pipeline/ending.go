package pipeline

import (
	"slices"
	"time"
)

// decide settles what each answer means, once: everything after goes by it.
func decide(policy Policy, group []*Delivery, now time.Time) {
	for _, d := range group {
		if !d.abandoned {
			d.ending = policy.Decide(&d.Result, d.Item.Attempt, d.Item.Hops, d.Expires, now)
		}
		if d.paid == chargeLastTry && d.ending.State != StateDeadLettered {
			d.gate.DeadLetters.Return(1)
		}
	}
}

// waits reports whether the row of an answer must wait for a record that is
// produced before it: a hand-over, or the feedback on a dead token.
func (d *Delivery) waits() bool { return d.ending.HandsOver() || d.Result.Class == Gone }

// answerRows are the rows that can be written as the answers arrive: of what
// the providers accepted, and of what ended otherwise.
func answerRows(group []*Delivery, told *Ended, now time.Time) (accepted, other []Row) {
	accepted = make([]Row, 0, len(group))
	for _, d := range group {
		if d.abandoned || d.waits() || d.Result.Class == Claimed {
			continue
		}
		row := d.row(d.ending.State, d.ending.Reason, now)
		told.Add(d.Item, &row)
		if row.State == StateDelivered {
			accepted = append(accepted, row)
		} else {
			other = append(other, row)
		}
	}
	return accepted, other
}

// endRows are all other rows of the items: verdicts before sending, and what
// was handed over.
func endRows(items []*Item, told *Ended, now time.Time) []Row {
	rows := make([]Row, 0, len(items))
	for _, it := range items {
		if it.Verdict == Undecided && it.claimed() {
			it.Decide(Duplicate, "", "")
		}
		from := len(rows)
		rows = it.endRows(rows, now)
		for i := range rows[from:] {
			told.Add(it, &rows[from+i])
		}
		if it.Verdict == Duplicate && !it.Reread {
			told.Duplicate(it)
		}
	}
	return rows
}

func (it *Item) endRows(rows []Row, now time.Time) []Row {
	switch it.Verdict {
	case Duplicate:
	case Undecided:
		for j := range it.Deliveries {
			d := &it.Deliveries[j]
			switch {
			case d.Verdict != Undecided:
				rows = append(rows, d.row(verdictState(d.Verdict), d.Reason, now))
			case d.waits():
				rows = append(rows, d.row(d.ending.State, d.ending.Reason, now))
			}
		}
	default:
		rows = it.verdictRows(rows, now)
	}
	return rows
}

// failureEvents are the records that tell producers of final failures.
func failureEvents(hs []Handover, told *Ended, now time.Time) []Handover {
	for _, value := range told.Failures(now) {
		hs = append(hs, Handover{To: ToEvents, Event: value})
	}
	return hs
}

// verdictRows appends the rows of an item that was decided before its devices:
// one without a device, or for a record that names its devices one for each,
// because a row without a device counts only while no device has one.
func (it *Item) verdictRows(rows []Row, now time.Time) []Row {
	reason := string(it.Reason)
	if it.Detail != "" {
		reason += ":" + it.Detail
	}
	row := Row{ID: it.RowID(), Step: it.Step(), State: verdictState(it.Verdict), At: now,
		Reason: reason, UserHash: UserHash(it.Owner())}
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
func (d *Delivery) row(s State, r Reason, now time.Time) Row {
	return Row{ID: d.Item.RowID(), Device: d.Device.Hash, Step: d.Item.Step(), State: s, At: now,
		Platform: d.Route.Platform, ProviderID: d.Result.ProviderID, Reason: string(r), UserHash: UserHash(d.Item.Owner())}
}

// handovers are the records to produce before these items may end.
func handovers(items []*Item) (hs []Handover) {
	for _, it := range items {
		switch it.Verdict {
		case Undecided:
			hs = it.handovers(hs)
		case Dead:
			hs = append(hs, Handover{To: ToDLQ, Item: it, Reason: it.Reason, Detail: it.Detail, Attempt: it.Attempt, Hops: it.Hops, Devices: it.Devices})
		case Deferred:
			hs = append(hs, Handover{To: ToRetry, Item: it, Reason: it.Reason, Attempt: it.Attempt, Hops: it.Hops + 1, NotBefore: it.NotBefore, Devices: it.Devices})
		}
	}
	return hs
}

// handovers appends one record for each way on that some of the item's devices
// take together, and one for each dead token.
func (it *Item) handovers(hs []Handover) []Handover {
	retry := Handover{To: ToRetry, Item: it, Attempt: it.Attempt + 1, Hops: it.Hops}
	dead := Handover{To: ToDLQ, Item: it, Attempt: it.Attempt, Hops: it.Hops}
	var held [FCM + 1]Handover
	for j := range it.Deliveries {
		d := &it.Deliveries[j]
		if d.Verdict != Undecided {
			continue
		}
		if d.Result.Class == Gone {
			hs = append(hs, Handover{To: ToFeedback, Item: it, Device: d.Device, DeadSince: d.Result.DeadSince, Reason: Reason(d.Result.Reason)})
		}
		switch d.ending.State {
		case StateRetrying:
			retry.add(d)
		case StateDeadLettered:
			dead.add(d)
		case StateHeld:
			h := &held[d.Route.Platform]
			h.To, h.Item, h.Platform, h.Attempt, h.Hops = ToHold, it, d.Route.Platform, it.Attempt, it.Hops+1
			h.add(d)
		}
	}
	for _, h := range [...]Handover{retry, dead, held[APNS], held[FCM]} {
		if len(h.Devices) > 0 {
			hs = append(hs, h)
		}
	}
	return hs
}

// add makes the hand-over cover d too; the latest device says when it is due.
func (h *Handover) add(d *Delivery) {
	e := d.ending
	h.Devices = append(h.Devices, d.Device.Hash)
	h.Reason = e.Reason
	if e.State == StateDeadLettered {
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
		if it.ID != "" && it.Reason != IDReused {
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
		if it.abandoned() {
			abandoned = append(abandoned, it)
		} else {
			ended = append(ended, it)
		}
	}
	return ended, abandoned
}

func (it *Item) abandoned() bool {
	for j := range it.Deliveries {
		if it.Deliveries[j].abandoned {
			return true
		}
	}
	return false
}

// forTrackers calls mark once for each tracker with its items.
func forTrackers(items []*Item, mark func(*Tracker, []*Item)) {
	for len(items) > 0 {
		t := items[0].batch.Tracker
		mine, rest := items[:0:0], items[:0]
		for _, it := range items {
			if it.batch.Tracker == t {
				mine = append(mine, it)
			} else {
				rest = append(rest, it)
			}
		}
		mark(t, mine)
		items = rest
	}
}

// claimed reports whether all that it was to be sent to is another record's.
func (it *Item) claimed() bool {
	for j := range it.Deliveries {
		if it.Deliveries[j].Result.Class != Claimed {
			return false
		}
	}
	return len(it.Deliveries) > 0
}

// anyLeaving reports whether the partition of one of the items is leaving.
func anyLeaving(items []*Item) bool {
	for _, it := range items {
		if it.batch.Tracker.Draining() {
			return true
		}
	}
	return false
}

// allLeaving reports whether every one of the items' partitions is leaving.
func allLeaving(items []*Item) bool {
	for _, it := range items {
		if !it.batch.Tracker.Draining() {
			return false
		}
	}
	return true
}
