//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/bench/fleet"
	"github.com/pushfleet/pushfleet/bench/latency"
	"github.com/pushfleet/pushfleet/crowd"
)

// backlog is what was produced, so that it can be known whom it was to reach. Copies of an id are no notifications of
// their own.
type backlog struct {
	people *crowd.Crowd
	ids    []string
	users  []int32        // of each id, as the crowd numbers them
	timed  []latency.Sent // those of them whose acceptance the simulator writes down, where they are produced at a rate
	began  time.Time      // of producing at a rate
}

// add is one more notification that has to be there.
func (b *backlog) add(id string, user int) {
	b.ids, b.users = append(b.ids, id), append(b.users, int32(user))
}

// produceGroup is how many notifications are made up and produced at a time.
const produceGroup = 10_000

// produce makes the backlog: records that were made as far apart as Options.Minted says, the last one now. A share of it
// is in the dedupe filter before it is in the topic: of these the filter says "maybe", as one does that is full or was told
// by an earlier owner, so that the worker has to read their status, finds nothing, and sends them.
func produce(ctx context.Context, o *Options, f *fleet.Fleet, people *crowd.Crowd) (*backlog, error) {
	total := o.total()
	b := &backlog{people: people, ids: make([]string, 0, total), users: make([]int32, 0, total)}
	g, spacing := people.Records(), time.Second/time.Duration(o.Minted)
	at := time.Now().Add(-spacing * time.Duration(total))
	var said time.Time
	for made := 0; made < total; {
		if time.Since(said) >= sayEvery {
			said = time.Now()
			o.Progress("producing the backlog: %d of %d", made, total)
		}
		n := min(produceGroup, total-made)
		records, confirm := b.next(g, n, o.Confirms, at, spacing)
		made, at = made+n, at.Add(spacing*time.Duration(n))
		if len(confirm) > 0 {
			full, err := f.FillFilter(ctx, confirm)
			if err != nil {
				return nil, err
			}
			if full {
				return nil, errors.New("the dedupe filter is full: all notifications would be confirmed")
			}
		}
		if err := f.Produce(ctx, records); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// paceEvery is how often some are produced at a rate.
const paceEvery = 5 * time.Millisecond

// pace produces the notifications at Options.Rate until all are there or ctx ends. Each is due at its own time, which is
// in its id, and waits for nothing but its turn at the Kafka client: if that is late, the notification took longer.
func (b *backlog) pace(ctx context.Context, o *Options, f *fleet.Fleet) error {
	g, spacing, began := b.people.Records(), time.Second/time.Duration(o.Rate), time.Now()
	b.began = began
	ticker := time.NewTicker(paceEvery)
	defer ticker.Stop()
	for made := 0; made < o.total(); {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			n := min(int(now.Sub(began)/spacing), o.total()) - made
			if n <= 0 {
				continue
			}
			known := len(b.ids)
			records, _ := b.next(g, n, 0, began.Add(spacing*time.Duration(made)), spacing)
			// What is begun is acknowledged also when the measurement ends: what counts was written.
			if err := f.Produce(context.WithoutCancel(ctx), records); err != nil {
				return err
			}
			b.note(known, began.Add(spacing*time.Duration(made)))
			made += n
		}
	}
	return nil
}

// note notes when those from the known-th on were due that the simulator writes down. Copies are none of them, so the
// time is that of the first at the earliest: a few spacings too early, never too late.
func (b *backlog) note(known int, due time.Time) {
	for i, id := range b.ids[known:] {
		if user := int(b.users[known+i]); user < passwordUsers {
			b.timed = append(b.timed, latency.Sent{ID: id, User: user, At: due})
		}
	}
}

// counted are those that were due between warm-up and cool-down: of what comes at a rate that is known, whatever was
// committed by then.
func (b *backlog) counted(o *Options) (list []latency.Sent) {
	spacing := time.Second / time.Duration(max(1, o.Rate))
	from := b.began.Add(spacing * time.Duration(o.WarmUp))
	to := from.Add(spacing * time.Duration(o.Notifications))
	for _, t := range b.timed {
		if !t.At.Before(from) && t.At.Before(to) {
			list = append(list, t)
		}
	}
	return list
}

// next makes up n records more, from a time on, and says which of them are to be confirmed: a share, evenly spread.
func (b *backlog) next(g *crowd.Records, n int, share float64, at time.Time, spacing time.Duration) (records, confirm []fleet.Record) {
	for i := range n {
		made := g.Next(at.Add(spacing * time.Duration(i)))
		r := fleet.Record{Key: made.Key, Value: made.Value, Want: fleet.WantOf(made.Fate)}
		records = append(records, r)
		if made.Fate == crowd.IsCopy {
			continue
		}
		if i := float64(len(b.ids)); int((i+1)*share) > int(i*share) {
			confirm = append(confirm, r)
		}
		b.add(made.ID, made.User)
	}
	return records, confirm
}

// newPeople is a crowd of whom everybody can be reached: ten notifications each.
func newPeople(o *Options) (*crowd.Crowd, error) {
	people, err := crowd.New(crowd.Options{Seed: 1, App: fleet.App, Users: max(1000, o.total()/10), Devices: o.Devices, Duplicates: o.Duplicates})
	if err != nil {
		return nil, fmt.Errorf("making up users: %w", err)
	}
	return people, nil
}
