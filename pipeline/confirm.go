package pipeline

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// shortestConfirm is the shortest time for which a confirm read stays valid:
// otherwise deliveries that wait for a token would be read over and over.
const shortestConfirm = time.Second

// confirmFor is how long after a confirm read its item may be sent. The copy that a
// dead owner left behind sends nothing until it has claimed the device with a row of
// its own and has waited, for the shortest tier or for claimFor (stages.Dedupe):
//
//	the item    reads nothing ── confirmFor ──▶ is sent ── deadline, time-outs ──▶ its row
//	its copy           claims; its row within a time-out ── tier or claimFor ──▶ reads
//
// So either the item reads the claim, or the copy reads what became of the item.
func (o *Options) confirmFor() time.Duration {
	return max(slices.Min(o.Policy.RetryDelays), o.claimFor()) - o.SendDeadline - 2*o.StatusTimeout
}

// claimFor is how long a copy that has claimed its devices waits at least: until the
// row of an item that was about to be sent is durable.
func (o *Options) claimFor() time.Duration {
	return o.SendDeadline + 2*o.StatusTimeout + shortestConfirm
}

// delayClaims makes copies that claim their devices wait for claimFor from now on,
// where the shortest tier is shorter. now is when their records are produced: their
// rows, which close the origin, come right after.
func (p *Pipeline) delayClaims(hs []Handover, now time.Time) {
	if p.claimDelay == 0 {
		return
	}
	due := now.Add(p.claimDelay)
	for i := range hs {
		if h := &hs[i]; h.To == ToDefer && h.Reason == push.Unclaimed && h.NotBefore.Before(due) {
			h.NotBefore = due
		}
	}
}

// cleared checks what a long wait has made old: what allows deliveries to be sent,
// and their rows. While one check waits for its store, the answer of the other grows
// old, so both are repeated until neither is. Results are as those of confirmed.
func (p *Pipeline) cleared(ctx context.Context, ds []*Delivery) (open []*Delivery, err error) {
	for {
		if ds, err = p.allowed(ctx, ds); err != nil {
			return ds, err
		}
		if ds, err = p.confirmed(ctx, ds); err != nil || len(p.outdated(ds, time.Now())) == 0 {
			return ds, err
		}
	}
}

// allowed checks deliveries again whose user's record was read more than
// RecheckAfter ago: during minutes behind a paused route a user may have opted out,
// or the token may have got another owner. It returns those that may be sent, in
// place; the others end with their verdict. It waits for the store and never
// guesses; an error says that nothing is known, because ctx ended or some of the
// partitions leave.
func (p *Pipeline) allowed(ctx context.Context, ds []*Delivery) ([]*Delivery, error) {
	old := p.outdated(ds, time.Now())
	if len(old) == 0 {
		return ds, nil
	}
	leaving := func() bool {
		now := time.Now()
		return slices.ContainsFunc(old, func(d *Delivery) bool { return p.goesBack(d, now) })
	}
	var asked time.Time
	err := p.repeat(ctx, StepRecheck, leaving, func() error {
		asked = time.Now()
		return p.opt.Recheck.Recheck(ctx, old)
	})
	if err != nil {
		return ds, err
	}
	for _, d := range old {
		d.rechecked = UptimeAt(asked)
	}
	open, decided := split(ds, func(d *Delivery) bool { return d.Verdict != push.Undecided })
	p.toSettle.put(decided...)
	return open, nil
}

// outdated returns the deliveries whose user's record was read too long ago. Without
// a user there is nothing to read.
func (p *Pipeline) outdated(ds []*Delivery, now time.Time) (old []*Delivery) {
	if p.opt.Recheck == nil {
		return nil
	}
	for _, d := range ds {
		if at := cmp.Or(d.rechecked, d.Item.Read); !at.IsZero() && now.Sub(at.Time()) > p.opt.RecheckAfter {
			old = append(old, d)
		}
	}
	return old
}

// confirmed reads the status again for deliveries that have waited longer than their
// confirm read is valid. It returns those that may be sent, in place. The others
// belong to another record by now, and end as Claimed. It waits for the store and
// never guesses; an error says that nothing is known, because ctx ended or some of
// the partitions leave.
func (p *Pipeline) confirmed(ctx context.Context, ds []*Delivery) ([]*Delivery, error) {
	items := p.unconfirmed(ds, time.Now())
	if len(items) == 0 {
		return ds, nil
	}
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.ID
	}
	var asked time.Time
	var rows [][]push.Row
	err := p.repeat(ctx, StepConfirm, func() bool { return slices.ContainsFunc(items, (*Item).leaving) }, func() (err error) {
		asked = time.Now()
		rows, err = p.opt.Ledger.Read(ctx, ids)
		return err
	})
	if err != nil {
		return ds, err
	}
	known := make(map[*Item]*push.History, len(items))
	for i, it := range items {
		own, _ := push.OwnRows(rows[i], push.UserHash(it.Owner()))
		known[it] = push.NewHistory(own)
	}
	open := ds[:0]
	for _, d := range ds {
		h := known[d.Item]
		switch {
		case h == nil:
			open = append(open, d)
		case h.ClosedWhole(d.Item.Step(), d.Item.Redrive > 0), h.Closed(d.Device.Hash, d.Item.Step(), d.Item.Redrive > 0):
			d.Result = push.Result{Class: push.Claimed}
			d.found = d.endedBefore(h)
			p.toSettle.put(d)
		default:
			d.confirmed = UptimeAt(asked)
			open = append(open, d)
		}
	}
	return open, nil
}

// endedBefore returns the row of the delivery's own record, if a former owner of its
// partition has written it since the item was confirmed; else nil.
func (d *Delivery) endedBefore(h *push.History) *push.Row {
	for _, r := range d.Item.EndedBefore(h.Rows) {
		if r.Device == d.Device.Hash && !d.Item.hasEnded(r.Device, r.State) {
			return &r
		}
	}
	return nil
}

// unconfirmed returns the items of ds whose confirm read is too old, each once. An
// item without a confirm read can have no copy, and one that is committed is ours.
func (p *Pipeline) unconfirmed(ds []*Delivery, now time.Time) (items []*Item) {
	for _, d := range ds {
		at := cmp.Or(d.confirmed, d.Item.Confirmed)
		if at.IsZero() || d.Item.committed || now.Sub(at.Time()) <= p.confirmFor || slices.Contains(items, d.Item) {
			continue
		}
		items = append(items, d.Item)
	}
	return items
}
