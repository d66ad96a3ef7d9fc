package pipeline

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// sendOnce is sendAll for lanes of mode at_most_once. The intents of a batch are
// durable before its offset is committed, and the offset is committed before the
// batch is sent. A worker that dies leaves intents without results; they end
// UNKNOWN and are never sent again. Only one batch of a partition at a time is
// between its intents and its results. So the next owner finds everything that a
// dead one can have left in the one batch below the committed offset. Batches
// come in order, because in these lanes each stage has one worker.
func (p *Pipeline) sendOnce(ctx context.Context, batches <-chan *Batch) {
	var sending sync.WaitGroup
	turn := make(map[*Tracker]chan struct{}) // of a tracker's latest batch, which closes it when it is over
	for b := range batches {
		for t, over := range turn {
			select {
			case <-over:
				delete(turn, t)
			default:
			}
		}
		before, over := turn[b.Tracker], make(chan struct{})
		turn[b.Tracker] = over
		sending.Go(func() {
			defer close(over)
			if before != nil {
				<-before
			}
			p.sendIntended(ctx, b)
		})
	}
	sending.Wait()
}

// sendIntended takes one batch from its intents to its results.
func (p *Pipeline) sendIntended(ctx context.Context, b *Batch) {
	if b.Tracker.Draining() { // too late: the next owner sends it
		p.abandonBatch(b)
		return
	}
	waiting := make(map[*line][]*Delivery)
	decided := p.sort(b, waiting)
	items := itemsOf(waiting)
	b.over = make(chan struct{}, len(b.Items))
	p.toSettle.put(decided...)
	b.awaitOver(ctx, len(b.Items)-len(items)) // items that are not sent must be done, so that the commit can pass them
	if len(items) == 0 {
		return
	}
	if !awaitTurn(ctx, b.Tracker) { // nothing is intended yet: the next owner sends it
		p.abandon(b.Tracker, items)
		return
	}
	if err := p.writeRows(ctx, StepIntents, b.Tracker.Draining, intents(waiting, time.Now())); err != nil {
		p.abandon(b.Tracker, items)
		return
	}
	b.Tracker.Intend(items)
	if !p.commitThrough(ctx, b.Tracker, items) {
		p.disown(ctx, waiting)
		p.abandon(b.Tracker, items)
		return
	}
	for _, it := range items {
		it.committed = true
	}
	p.enqueue(waiting)
	b.awaitOver(ctx, len(items))
}

// awaitOver waits until n more items have ended, or ctx ends: a provider may
// answer after that, or never.
func (b *Batch) awaitOver(ctx context.Context, n int) {
	for range n {
		select {
		case <-b.over:
		case <-ctx.Done():
			return
		}
	}
}

// awaitTurn waits while another worker may own the partition, and reports whether
// it is ours. Otherwise a worker that was suspended and wakes up could write
// intents that the new owner never sees, because it has looked for them already.
func awaitTurn(ctx context.Context, t *Tracker) bool {
	for {
		switch {
		case t.Draining(), ctx.Err() != nil:
			return false
		case !t.Lapsed(time.Now()):
			return true
		}
		pause(ctx, leasePause)
	}
}

// disown ends intents that will never be sent. The next owner also ends those that
// it finds. But a worker that was suspended for longer than its session may have
// written intents after the next owner looked for them, perhaps for a device that
// the next owner does not know: nobody else would ever end those. It is tried only
// once: the worker that reads the record again ends the rest.
func (p *Pipeline) disown(ctx context.Context, waiting map[*line][]*Delivery) {
	ctx, cancel := context.WithTimeout(ctx, p.opt.StatusTimeout)
	defer cancel()
	rows := intents(waiting, time.Now())
	for i := range rows {
		rows[i].State, rows[i].Reason = push.StateUnknown, string(push.IntentLost)
	}
	if survived(StepIntents, func() error { return p.opt.Status.Write(ctx, rows) }) != nil {
		p.opt.Metrics.failedStep(p.opt.Lane, StepIntents)
	}
}

// itemsOf returns the items of the waiting deliveries, each once.
func itemsOf(waiting map[*line][]*Delivery) []*Item {
	found := make(map[*Item]struct{})
	for _, ds := range waiting {
		for _, d := range ds {
			found[d.Item] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(found))
}

// intents returns the rows that say: from now on this may have been sent. Those of a
// notification follow each other, so that the store has all of them or none: an heir that
// finds some ends them, and knows of no others.
func intents(waiting map[*line][]*Delivery, now time.Time) (rows []push.Row) {
	for _, ds := range waiting {
		for _, d := range ds {
			rows = append(rows, d.row(push.StateSending, "", now))
		}
	}
	slices.SortStableFunc(rows, func(a, b push.Row) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}

// commitPause is how soon a commit that did not reach a batch is tried again.
const commitPause = 10 * time.Millisecond

// commitThrough commits until the group has committed past all items. It returns
// false if that will never happen: the partition leaves, or the worker stops.
func (p *Pipeline) commitThrough(ctx context.Context, t *Tracker, items []*Item) bool {
	last := slices.MaxFunc(items, func(a, b *Item) int { return cmp.Compare(a.seq, b.seq) })
	for {
		// An error does not tell what was committed; the tracker knows.
		err := p.opt.Source.Commit(ctx)
		done, possible := t.IsCommitted(last)
		if next, _ := t.Watermark(); next <= last.Offset {
			possible = false // something before it was abandoned: the partition leaves
		}
		if done || !possible || ctx.Err() != nil {
			return done
		}
		if err != nil {
			p.opt.Metrics.failedStep(p.opt.Lane, StepCommit)
		}
		pause(ctx, commitPause)
	}
}
