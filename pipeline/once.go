package pipeline

import (
	"context"
	"sync"
	"time"
)

// sendOnce is sendAll for lanes of mode at_most_once. A batch's intents are
// durable before its offset is committed, and committed before it is sent: a
// worker that dies leaves an intent without a result, which ends UNKNOWN and is
// never sent again. Of a partition one batch is between its intents and its
// results at a time, so the next owner finds all that a dead one can have left
// by looking at one batch below the committed offset. Batches come in order:
// in these lanes each stage has one worker.
func (p *Pipeline) sendOnce(ctx context.Context, batches <-chan *Batch) {
	var sending sync.WaitGroup
	turn := make(map[*Tracker]chan struct{}) // closed by the batch that has the turn
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
	waiting := make(map[*line][]*Delivery)
	ended := p.sort(b, waiting)
	p.finish(ctx, ended)
	var items []*Item
	for i := range b.Items {
		if b.Items[i].unanswered > 0 {
			items = append(items, &b.Items[i])
		}
	}
	if len(items) == 0 {
		return
	}
	if b.Tracker.Draining() { // nothing is intended yet: the next owner sends it
		b.Tracker.Abandon(items)
		return
	}
	err := p.repeat(ctx, "intents", b.Tracker.Draining, func() error {
		ctx, cancel := context.WithTimeout(ctx, p.StatusTimeout)
		defer cancel()
		return p.Status.Write(ctx, intents(waiting, time.Now()))
	})
	if err != nil {
		b.Tracker.Abandon(items)
		return
	}
	b.Tracker.Intend(items)
	if !p.commitThrough(ctx, b.Tracker, items) {
		p.disown(ctx, waiting)
		b.Tracker.Abandon(items)
		return
	}
	b.unsettled = &sync.WaitGroup{}
	b.unsettled.Add(len(items))
	for _, it := range items {
		it.committed = true
	}
	p.enqueue(waiting)
	b.unsettled.Wait()
}

// disown ends intents that will never be sent. The next owner does so too for
// those that it finds; but a worker that was stopped for longer than its session
// may write them after its heir has looked, and of a device that the heir did
// not know nobody else would ever say more. It is tried once: who reads the
// record again ends what is left.
func (p *Pipeline) disown(ctx context.Context, waiting map[*line][]*Delivery) {
	ctx, cancel := context.WithTimeout(ctx, p.StatusTimeout)
	defer cancel()
	rows := intents(waiting, time.Now())
	for i := range rows {
		rows[i].State, rows[i].Reason = StateUnknown, string(IntentLost)
	}
	if err := p.Status.Write(ctx, rows); err != nil {
		p.Metrics.failedStep(p.Lane, "intents")
	}
}

// turnsOf are the batches of intents, one for each of these items, that wait
// for their results before the next one has its turn.
func turnsOf(groups ...[]*Item) (bs []*Batch) {
	for _, items := range groups {
		for _, it := range items {
			if it.committed {
				bs = append(bs, it.batch)
			}
		}
	}
	return bs
}

// intents are the rows that say: from here on, this may have been sent.
func intents(waiting map[*line][]*Delivery, now time.Time) (rows []Row) {
	for _, ds := range waiting {
		for _, d := range ds {
			rows = append(rows, d.row(StateSending, "", now))
		}
	}
	return rows
}

// commitPause is how soon a commit that did not reach a batch is asked again.
const commitPause = 10 * time.Millisecond

// commitThrough commits until the group has committed past all items, and
// reports false when it never will: the partition has left, or the worker
// stops.
func (p *Pipeline) commitThrough(ctx context.Context, t *Tracker, items []*Item) bool {
	last := items[0]
	for _, it := range items {
		if it.seq > last.seq {
			last = it
		}
	}
	for {
		// An error is no answer: the tracker knows what was committed.
		err := p.Source.Commit(ctx)
		done, possible := t.IsCommitted(last)
		if next, _ := t.Watermark(); next <= last.Offset {
			possible = false // something before it was abandoned: the partition leaves
		}
		if done || !possible || ctx.Err() != nil {
			return done
		}
		if err != nil {
			p.Metrics.failedStep(p.Lane, "commit")
		}
		select {
		case <-time.After(commitPause):
		case <-ctx.Done():
		}
	}
}
