//go:build linux

package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/servers"
	"github.com/pushfleet/pushfleet/push"
)

// ledger is the simulator's, by which the worker's word is judged.
type ledger interface {
	// Accepted is how often each was accepted, aligned with them.
	Accepted(ctx context.Context, pairs []servers.Pair) ([]int, error)
	// Total is how many pushes were accepted at all.
	Total(ctx context.Context) (int, error)
}

// found is what there is of what has to be there: a push and a row for each
// device of each notification's user, once, and nothing else.
type found struct {
	pushes                   int    // that have to be there, and as many rows
	unpushed, again, strange int    // pushes that are missing, beyond the first, or of none of these devices
	rowless, strangeRows     int    // rows that are missing, or of none of these devices
	first                    string // in words, of what is wrong
}

// checkGroup is how many notifications are read from the status store at once.
const checkGroup = 10_000

// check holds the backlog against the simulator's ledger and the status rows,
// notification by notification and device by device. A rate of pushes that are
// missing, or whose rows are, is no figure. before is how many pushes had been
// accepted when nothing of it was produced yet.
func (b *backlog) check(ctx context.Context, l ledger, store fleet.StatusReader, before int) (*found, error) {
	c := &found{}
	for from := 0; from < len(b.ids); from += checkGroup {
		ids := b.ids[from:min(from+checkGroup, len(b.ids))]
		if err := c.group(ctx, l, store, ids, func(i int) []string { return b.people.Targets(int(b.users[from+i])).Live }); err != nil {
			return nil, err
		}
	}
	total, err := l.Total(ctx)
	if err != nil {
		return nil, err
	}
	accepted := total - before
	if c.strange = accepted - (c.pushes - c.unpushed + c.again); c.strange != 0 {
		c.note("%d pushes were accepted, and %d of them for the devices that they were for", accepted, accepted-c.strange)
	}
	return c, c.err()
}

// group looks for the pushes and rows of some ids, whose living devices live tells.
func (c *found) group(ctx context.Context, l ledger, store fleet.StatusReader, ids []string, live func(int) []string) error {
	rows, err := store.Read(ctx, ids)
	if err != nil {
		return fmt.Errorf("reading the status rows: %w", err)
	}
	var pairs []servers.Pair
	for i, id := range ids {
		devices := live(i)
		for _, device := range devices {
			pairs = append(pairs, servers.Pair{ID: id, Device: device})
		}
		c.row(id, devices, rows[i])
	}
	accepted, err := l.Accepted(ctx, pairs)
	if err != nil {
		return err
	}
	for i, p := range pairs {
		c.push(p.ID, p.Device, accepted[i])
	}
	return nil
}

// push notes how often one push that had to be there was accepted.
func (c *found) push(id, device string, accepted int) {
	c.pushes++
	switch {
	case accepted == 0:
		c.unpushed++
		c.note("%s was not accepted for device %s", id, device)
	case accepted > 1:
		c.again += accepted - 1
		c.note("%s was accepted %d times for device %s", id, accepted, device)
	}
}

// row notes which of a notification's devices have a row that says DELIVERED.
func (c *found) row(id string, live []string, rows []push.Row) {
	told := map[string]bool{}
	for _, r := range rows {
		if r.State == push.StateDelivered && r.ID == id {
			told[r.Device] = true
		}
	}
	for _, device := range live {
		if !told[device] {
			c.rowless++
			c.note("%s has no row that says DELIVERED to device %s, of %d rows", id, device, len(rows))
		}
	}
	for device := range told {
		if !slices.Contains(live, device) {
			c.strangeRows++
			c.note("%s has a row of device %q, which is none of its user's", id, device)
		}
	}
}

func (c *found) note(format string, args ...any) {
	if c.first == "" {
		c.first = fmt.Sprintf(format, args...)
	}
}

// err says what is missing or too much, if anything is.
func (c *found) err() error {
	if c.first == "" {
		return nil
	}
	return fmt.Errorf("this is no measurement: of %d pushes %d are missing, %d were accepted again, %d were for others; of as many rows %d are missing, %d tell of others. The first: %s",
		c.pushes, c.unpushed, c.again, c.strange, c.rowless, c.strangeRows, c.first)
}
