// Package pipeline is the way of a notification from the poll to the commit,
// and owns what goes along it: Item, Batch, Delivery, Tracker. It declares as
// small interfaces what it needs of the rest; the nouns are those of push.
//
// START HERE. One Pipeline serves one consumer group of a lane: that of its topic,
// or that of its retry and hold topics. This file is the way, top to bottom; the
// steps in it are, in their order, in send.go, decide.go, rows.go, outlet.go and
// remember.go:
//
//	Source ── Next ──▶ stage ──▶ stage ──▶ … ──▶ send ──▶ dispatch ──▶ Provider
//	(Kafka)            dedupe    preferences     │ a goroutine for each     │
//	   ▲               devices   limits          │ route and charge         │ results in groups
//	   │                                         │ decided before           ▼
//	   │                                         │ sending ──────────▶ settle: Status.Write
//	   │                                         │                          │ what does not end here
//	   │                                         │                          ▼
//	   │                                         │                     handOver: Produce, Status.Write
//	   │                                         ▼                          │ items whose last device has its row
//	   └─ Commit ◀── Tracker.Done ◀── Seen.Add ◀── remember ◀───────────────┘
//
// Each delivery ends by itself, as soon as it is answered: its hand-over, its
// row, its place in the window. Its item ends with the last of them.
//
// A batch has one owner at a time up to send; from there its items go each
// their own way, and meet again only in the Tracker, which knows up to where
// everything is done.
package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Pipeline is one topic's way from poll to commit.
type Pipeline struct {
	opt    Options
	routes map[push.Route]*route

	// confirmFor is how long a confirm read lets its item be sent.
	confirmFor time.Duration

	// Queues between the steps of an end. Each is closed by Run when nothing more
	// can come; what comes all the same, from a provider that took too long, is
	// the next owner's.
	answered *queue[*Delivery]            // came back, or was decided before sending; settle takes them
	handing  map[outlet]*queue[*Delivery] // does not end here, by where its record goes; handOver takes them
	ended    *queue[*Item]                // every delivery has its end; remember takes them
	// commitSoon asks the committer not to wait for its interval. Buffered,
	// capacity 1; never closed.
	commitSoon chan struct{}
	// stalls are the reasons why the pipeline is blocked now.
	stalls Stalls
	// assigned are the trackers of the batches there are.
	assigned assigned
}

// How many groups each step of an end works on at once. Rows wait for nobody
// but the status store, so each step has workers of its own: enough to keep
// its store busy while each waits for its acknowledgement.
const (
	settleWorkers   = 16
	handOverWorkers = 3 // for each outlet
	rememberWorkers = 4
)

// settleGroup is the most ends one worker takes: larger groups fill larger
// batches per status bucket, smaller ones are durable sooner.
const settleGroup = 2000

// Run polls, works and commits until ctx ends or the source fails. Then every
// partition leaves: what is not sent is given back at once, what is sent gets
// its answers and rows, and Run commits once more and returns within the drain
// budget: nil after ctx, else the source's error. What has no durable end by
// then holds the watermark, and comes again to the next owner.
func (p *Pipeline) Run(ctx context.Context) error {
	polling, stop := context.WithCancel(ctx)
	defer stop()
	submitting, stopSubmitting := endsLater(polling, p.opt.submitAfterStop())
	defer stopSubmitting()
	writing, stopWriting := endsLater(polling, p.opt.writeAfterStop())
	defer stopWriting()

	var leaving, committer, dispatchers sync.WaitGroup
	stopCommitting := make(chan struct{}) // closed below, once everything is settled
	leaving.Go(func() { p.leaveWith(polling) })
	committer.Go(func() { p.commitUntil(writing, stopCommitting) })
	for l := range p.lines {
		dispatchers.Go(func() { p.dispatch(polling, submitting, l) })
	}
	settlers := eachGroup(settleWorkers, p.answered, func(ds []*Delivery) { p.settle(writing, ds) })
	handers := make(map[outlet]*sync.WaitGroup, len(p.handing))
	for o, q := range p.handing {
		handers[o] = eachGroup(handOverWorkers, q, func(ds []*Delivery) { p.handOver(writing, ds) })
	}
	rememberers := eachGroup(rememberWorkers, p.ended, func(its []*Item) { p.remember(writing, its) })

	batches, failed := p.poll(polling, stop)
	for _, s := range p.opt.Stages {
		batches = p.through(polling, s, batches)
	}
	if p.opt.Once {
		p.sendOnce(writing, batches)
	} else {
		p.sendAll(batches)
	} // returns when polling and all stages ended

	for l := range p.lines {
		l.waiting.close()
	}
	dispatchers.Wait()
	p.assigned.drain(writing)
	p.answered.close()
	settlers.Wait()
	p.endHandingOver(handers)
	p.ended.close()
	rememberers.Wait()
	close(stopCommitting)
	committer.Wait()
	leaving.Wait()
	return <-failed
}

// eachGroup starts n workers that take groups of ends from q until it is closed
// and empty.
func eachGroup[T any](n int, q *queue[T], work func([]T)) *sync.WaitGroup {
	workers := new(sync.WaitGroup)
	for range n {
		workers.Go(func() {
			var group []T
			for {
				if group = q.take(group, settleGroup); len(group) == 0 {
					return
				}
				work(group)
			}
		})
	}
	return workers
}

// poll hands out batches until ctx ends or the source fails, and then closes
// the channel, calls stop and leaves one value in failed.
func (p *Pipeline) poll(ctx context.Context, stop func()) (<-chan *Batch, <-chan error) {
	batches, failed := make(chan *Batch), make(chan error, 1)
	go func() {
		defer close(batches)
		defer stop()
		for {
			b, err := p.opt.Source.Next(ctx)
			if err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				failed <- err
				return
			}
			p.opt.Metrics.polled(p.opt.Lane, b)
			if b.Poisoned != nil {
				p.poisoned(*b.Poisoned)
			}
			p.assigned.add(b.Tracker)
			batches <- b
		}
	}()
	return batches, failed
}

// through runs one stage over the batches with its own workers and hands them
// on. The returned channel is closed when in is closed and all are through.
func (p *Pipeline) through(ctx context.Context, s Stage, in <-chan *Batch) <-chan *Batch {
	out := make(chan *Batch)
	var workers sync.WaitGroup
	n := p.opt.StageWorkers
	if p.opt.Once {
		n = 1 // keeps the order
	}
	for range n {
		workers.Go(func() {
			for b := range in {
				if p.apply(ctx, s, b) {
					out <- b
				} else {
					abandonBatch(b)
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(out)
	}()
	return out
}

// apply repeats the stage until it could be done: a store that blinks stalls
// the batch and fails none of its items. It reports false when the batch is to
// be abandoned instead.
func (p *Pipeline) apply(ctx context.Context, s Stage, b *Batch) bool {
	start := time.Now()
	err := p.repeat(ctx, Step(s.Name()), b.Tracker.Draining, func() error { return Contain(ctx, s, b, p.poisoned) })
	p.opt.Metrics.stage(p.opt.Lane, s.Name(), time.Since(start))
	return err == nil && !b.Tracker.Draining()
}

func abandonBatch(b *Batch) {
	items := make([]*Item, len(b.Items))
	for i := range b.Items {
		items[i] = &b.Items[i]
	}
	b.Tracker.Abandon(items)
}

// settle decides what answers mean, and writes the rows of those that end
// here. What must be handed over first goes on to handOver, so that what was
// accepted waits for nothing but the status store.
func (p *Pipeline) settle(ctx context.Context, group []*Delivery) {
	group = p.sendLater(group)
	if p.opt.Observe != nil {
		p.opt.Observe(group)
	}
	p.opt.Metrics.answered(p.opt.Lane, group)
	p.poisonedSends(group)
	now := time.Now()
	p.decide(group, now)
	p.opt.Metrics.ambiguous(group)
	here, handing := splitWaiting(group)
	p.handOn(handing)
	p.end(here, p.record(ctx, here, now))
}

// handOver hands deliveries over to their next record: 1. it is acknowledged,
// 2. the rows that say so are durable. A record that its topic will never take
// goes to the DLQ instead.
func (p *Pipeline) handOver(ctx context.Context, group []*Delivery) {
	now := time.Now()
	refused, err := p.produce(ctx, group)
	if err == nil {
		var dead []*Delivery
		group, dead = deadLetter(group, refused)
		p.handOn(dead)
		err = p.record(ctx, group, now)
	}
	p.end(group, err)
}

// record writes the rows of decided deliveries and counts them once they are
// durable. It returns an error only when ctx ended first.
func (p *Pipeline) record(ctx context.Context, group []*Delivery, now time.Time) error {
	told := p.opt.Events.Group(p.opt.Lane)
	rows := p.rowsOf(group, told, now)
	if err := p.writeStatus(ctx, rows); err != nil {
		return err
	}
	told.Count(now)
	return nil
}

// end is the end of each delivery: its row is durable, it needs none, or, with
// an error, the next owner does it again. Only now has a hard kill nothing left
// to send twice, and its place in the window is free. The last end of an item
// sends it on to remember.
func (p *Pipeline) end(group []*Delivery, err error) {
	var last []*Item
	for _, d := range group {
		if d.abandoned || err != nil {
			atomic.StoreUint32(&d.Item.abandoned, 1)
		}
		if s := d.share; s != nil {
			if d.inWindow {
				s.line.settled(1)
				s.completed.Add(1)
			} else {
				s.returned.Add(1)
			}
		}
		if atomic.AddInt32(&d.Item.unanswered, -1) == 0 {
			last = append(last, d.Item)
		}
	}
	p.ended.put(last...)
}

// remember is the only way an item ends: 3. the filter knows it, or is known
// not to, before it is committed, because the next owner may trust the filter;
// 4. its tracker hears, and 5. the committer may commit. While the filter
// cannot be told, nothing new can be asked of it either, so waiting holds up
// nobody. A partition that leaves does not wait: its next owner confirms what
// is not committed.
func (p *Pipeline) remember(ctx context.Context, items []*Item) {
	items, abandoned := splitAbandoned(items)
	p.ending(items)
	p.noteLatest(ctx, items)
	noneLeft := func() bool {
		stay, leave := splitLeaving(items)
		p.giveBackItems(append(leave, p.ended.remove((*Item).leaving)...))
		items = stay
		return len(items) == 0
	}
	err := p.repeat(ctx, StepFilter, noneLeft, func() error {
		err := p.opt.Seen.Add(ctx, seenIDs(items))
		if err != nil {
			p.opt.Metrics.missedAdds.Add(float64(len(items)))
		}
		return err
	})
	if err != nil { // ctx ended, or all of them left
		items, abandoned = nil, append(abandoned, items...)
	}
	forTrackers(items, p.done)
	p.giveBackItems(abandoned)
	turnsOver(items)
}

// giveBackItems leaves items to the next owner of their partitions.
func (p *Pipeline) giveBackItems(items []*Item) {
	forTrackers(items, (*Tracker).Abandon)
	turnsOver(items)
}

// done marks items of one tracker, and wakes the committer when much is done.
func (p *Pipeline) done(t *Tracker, items []*Item) {
	if t.Done(items) {
		select {
		case p.commitSoon <- struct{}{}:
		default: // asked already
		}
	}
}

// commitUntil is the one committer: it commits the watermarks at the interval
// or when much is done, and once more when stop is closed.
func (p *Pipeline) commitUntil(ctx context.Context, stop <-chan struct{}) {
	ticker := time.NewTicker(p.opt.CommitInterval)
	defer ticker.Stop()
	soon := p.commitSoon
	for {
		select {
		case <-ticker.C:
			soon = p.commitSoon
		case <-soon:
		case <-stop:
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.opt.CommitTimeout)
			defer cancel()
			if err := p.opt.Source.Commit(last); err != nil {
				p.opt.Log.Warn("last commit failed: what is done since the one before comes again and is confirmed", "lane", p.opt.Lane, "error", err)
			}
			return
		}
		// Not repeated in place: the next tick has a newer watermark.
		if err := p.opt.Source.Commit(ctx); err != nil && ctx.Err() == nil {
			soon = nil // not before the next tick
			p.opt.Metrics.failedStep(p.opt.Lane, StepCommit)
			p.opt.Log.Warn("commit failed", "lane", p.opt.Lane, "error", err)
		}
	}
}
