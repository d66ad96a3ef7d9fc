package pipeline

import (
	"context"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// record writes the rows of decided deliveries and counts them once they are
// durable. It returns an error only when ctx ended first.
func (p *Pipeline) record(ctx context.Context, group []*Delivery, now time.Time) error {
	told := p.opt.Events.Group(p.opt.Lane)
	rows := p.rowsOf(group, told, now)
	if err := p.writeRows(ctx, StepStatus, nil, rows); err != nil {
		return err
	}
	told.Count(now)
	return nil
}

// rowsOf returns the status rows of decided deliveries. A duplicate gets none,
// and neither does a delivery that another record has claimed.
func (p *Pipeline) rowsOf(group []*Delivery, told Endings, now time.Time) []push.Row {
	rows := make([]push.Row, 0, len(group))
	for i := range push.Prefetching(len(group), func(i int) byte { return group[i].lines() }) {
		d := group[i]
		if d.abandoned || d.ending.State == 0 {
			continue
		}
		from := len(rows)
		*d.endedAt() = now.UnixNano()
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

// verdictRows appends the rows of an item that was decided as a whole: one row
// without a device, or, if the record names its devices, one row for each of them,
// because a row without a device counts only while no device has a row.
func (it *Item) verdictRows(rows []push.Row, now time.Time) []push.Row {
	reason := string(it.Reason)
	if it.Detail != "" {
		reason += ":" + it.Detail
	}
	row := push.Row{ID: it.RowID(), Step: it.Step(), State: it.Verdict.State(), At: now,
		Reason: reason, UserHash: push.UserHash(it.Owner()), Place: it.Partition.Place(it.Offset)}
	if len(it.Devices) == 0 {
		return append(rows, row)
	}
	for _, device := range it.Devices {
		row.Device = device
		rows = append(rows, row)
	}
	return rows
}

// row returns the status row of one delivery.
func (d *Delivery) row(s push.State, r push.Reason, now time.Time) push.Row {
	return push.Row{ID: d.Item.RowID(), Device: d.Device.Hash, Step: d.Item.Step(), State: s, At: now,
		Platform: d.Route.Platform, ProviderID: d.Result.ProviderID, Reason: string(r), UserHash: push.UserHash(d.Item.Owner()),
		Place: d.Item.Partition.Place(d.Item.Offset)}
}

// whole reports whether d stands for its whole item, which was decided as one
// instead of per device.
func (d *Delivery) whole() bool {
	return d.Verdict != push.Undecided && d.Item.Verdict != push.Undecided
}

// writeRows returns nil once the rows are durable, and an error only if ctx ended
// first or leaving, if given, returned true. There is no time-out for the whole
// write: the store has one for each of its attempts, and does not repeat the rows
// that are acknowledged. With a time-out for the whole, a slow store would make
// every write start over and never end.
func (p *Pipeline) writeRows(ctx context.Context, step Step, leaving func() bool, rows []push.Row) error {
	if len(rows) == 0 {
		return nil
	}
	return p.repeat(ctx, step, leaving, func() error {
		return p.patiently(ctx, step, leaving, func(ctx context.Context) error { return p.opt.Status.Write(ctx, rows) })
	})
}
