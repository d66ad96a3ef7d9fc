// Package pipeline takes a notification from the poll to the commit. It owns
// the types on this way: Item, Batch, Delivery and Tracker. It declares small
// interfaces for what it needs from other packages; the nouns come from push.
//
// START HERE. One Pipeline serves one consumer group of a lane: the group of its
// main topic, or that of its retry, deferral and hold topics. This file shows the
// whole way, top to bottom. Its steps are, in order, in send.go (with route.go, queue.go,
// turns.go and, where the lane sheds, earliest.go), confirm.go (what a long wait has made old is checked again before the
// send), decide.go, handover.go and rows.go; once.go replaces sendAll in lanes of mode
// at_most_once, and repeat.go has how a step waits for a store:
//
//	Source ── Next ──▶ stage ──▶ stage ──▶ … ──▶ send ──▶ dispatch ──▶ Provider
//	(Kafka)            dedupe    preferences     │ a goroutine for each     │
//	   ▲               devices   limits          │ route and charge         │ results in groups
//	   │                                         │ decided before           ▼
//	   │                                         │ sending ──────────▶ settle: Status.Write
//	   │                                         │                          │ deliveries to hand over
//	   │                                         │                          ▼
//	   │                                         │                     handOver: Produce, Status.Write
//	   │                                         ▼                          │ items whose last device has its row
//	   └─ Commit ◀── Tracker.Done ◀── Seen.Add ◀── remember ◀───────────────┘
//
// Each delivery ends on its own, as soon as it is answered: it is handed over if
// necessary, its row is written, and its place in the window becomes free. An
// item ends with its last delivery.
//
// Up to send, a batch has one owner at a time. From there on its items are
// independent of each other; only the Tracker sees them together again, and knows
// the offset up to which everything is done.
package pipeline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

// Pipeline takes the records of one consumer group from poll to commit.
type Pipeline struct {
	opt    Options
	routes map[push.Route]*route

	// confirmFor is how long after a confirm read its item may be sent.
	confirmFor time.Duration
	// claimDelay is how long a copy that claims its devices waits at least; zero =
	// the shortest tier is long enough.
	claimDelay time.Duration

	// Queues between the steps after an answer. Run closes each of them once
	// nothing more is expected. If a slow provider still returns a delivery after
	// that, it is left to the next owner.
	toSettle   *queue[*Delivery]            // answered, or decided before sending; read by settle
	toHandOver map[outlet]*queue[*Delivery] // to be handed over, by the record's destination; read by handOver
	toTell     map[string]*telling          // all deliveries of the item have ended, and its sender, the key, is told; read by tell
	toRemember *queue[*Item]                // the item has ended, and its sender knows; read by remember
	// commitSoon asks the committer not to wait for its interval. Buffered,
	// capacity 1; never closed.
	commitSoon chan struct{}
	// stalls are the reasons why the pipeline is blocked now.
	stalls gates.Stalls
	// assigned are the trackers of the batches in the pipeline.
	assigned assigned
	// givenBack are items that Latest still counts.
	givenBack givenBack
	// dispatched counts the records of which a delivery has got its place in a window.
	dispatched atomic.Uint64
}

// How many groups each step after an answer works on at once. Each step has
// workers of its own, so that a row waits only for the status store. There are
// enough of them to keep the store busy while each waits for an acknowledgement.
const (
	settleWorkers   = 16
	handOverWorkers = 3 // for each outlet
	rememberWorkers = 4
)

// settleGroup is the most entries that one worker takes at a time: larger groups
// make larger batches per status bucket, smaller ones are durable sooner.
const settleGroup = 2000

// Run polls, sends and commits until ctx ends or the source fails. Then every
// partition leaves: deliveries that have not been sent are given back at once,
// and those that have been sent still get their answers and rows. Run commits
// once more and returns within the drain budget: nil if ctx ended, otherwise the
// source's error. Items without a durable end by then hold the watermark, and the
// next owner reads them again.
func (p *Pipeline) Run(ctx context.Context) error {
	polling, stop := context.WithCancel(ctx)
	defer stop()
	submitting, stopSubmitting := endsLater(polling, p.opt.submitAfterStop())
	defer stopSubmitting()
	writing, stopWriting := endsLater(polling, p.opt.writeAfterStop())
	defer stopWriting()

	var leaving, committer, dispatchers sync.WaitGroup
	stopCommitting := make(chan struct{}) // closed below, once everything has ended
	leaving.Go(func() { p.leaveWith(polling) })
	committer.Go(func() { p.commitUntil(writing, stopCommitting) })
	for l := range p.lines {
		dispatchers.Go(func() { p.dispatch(polling, submitting, l) })
	}
	settlers := eachGroup(settleWorkers, p.toSettle, func(ds []*Delivery) { p.settle(writing, ds) })
	handers := make(map[outlet]*sync.WaitGroup, len(p.toHandOver))
	for o, q := range p.toHandOver {
		handers[o] = eachGroup(handOverWorkers, q, func(ds []*Delivery) { p.handOver(writing, ds) })
	}
	tellers := p.tellers(writing)
	rememberers := eachGroup(rememberWorkers, p.toRemember, func(its []*Item) { p.remember(writing, its) })

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
	p.toSettle.close()
	settlers.Wait()
	p.endHandingOver(handers)
	p.endTelling(tellers)
	p.toRemember.close()
	rememberers.Wait()
	close(stopCommitting)
	committer.Wait()
	leaving.Wait()
	return <-failed
}

// poll hands out batches until ctx ends or the source fails. Then it sends one
// value to failed (buffered, capacity 1; never closed), calls stop and closes the
// channel of batches.
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
			if ctx.Err() != nil { // this batch is the next owner's, also if leaveWith is late
				p.assigned.leave()
			}
			p.assigned.add(b.Tracker)
			p.beginLatest(b)
			p.follow(b)
			batches <- b
		}
	}()
	return batches, failed
}

// through runs one stage, with workers of its own, over the batches and passes
// them on. A batch keeps its room in the stage until the next step has it. It closes
// the returned channel when in is closed and all batches are through.
func (p *Pipeline) through(ctx context.Context, s Stage, in <-chan *Batch) <-chan *Batch {
	out := make(chan *Batch)
	var workers sync.WaitGroup
	n := p.opt.StageWorkers
	if p.opt.Once {
		n = 1 // keeps the order
	}
	room := newRoom(p.opt.StageRecords)
	for range n {
		workers.Go(func() {
			for b := range in {
				leave, through := p.apply(ctx, s, b, room)
				if through {
					out <- b
				} else {
					p.abandonBatch(b)
				}
				leave()
			}
		})
	}
	go func() {
		workers.Wait()
		close(out)
	}()
	return out
}

// apply repeats the stage until it succeeds: a short outage of a store delays the
// batch and fails none of its items. It reports whether the batch is through; if not,
// it must be abandoned. The batch has its room while it is worked on and, once it is
// through, until leave, but not between two attempts: there it keeps one of the stage's
// workers only, and others for which the store is well pass it.
func (p *Pipeline) apply(ctx context.Context, s Stage, b *Batch, r *room) (leave func(), through bool) {
	var start time.Time
	followed := b.undecided()
	leave = func() {}
	err := p.repeat(ctx, s.Name(), b.Tracker.Draining, func() error {
		out, entered := r.enter(ctx, b)
		if !entered {
			return errLeaving
		}
		if start.IsZero() {
			start = time.Now()
		}
		done := false
		defer func() {
			if !done { // it has failed, or panics
				out()
			}
		}()
		if err := Contain(ctx, s, b, p.poisoned); err != nil {
			return err
		}
		done, leave = true, out
		return nil
	})
	if !start.IsZero() {
		took := time.Since(start)
		p.opt.Metrics.stage(p.opt.Lane, s.Name(), took)
		for _, tl := range followed {
			tl.Stages = append(tl.Stages, Passed{s.Name(), start, start.Add(took)})
		}
	}
	return leave, err == nil && !b.Tracker.Draining()
}

func (p *Pipeline) abandonBatch(b *Batch) {
	items := make([]*Item, len(b.Items))
	for i := range b.Items {
		items[i] = &b.Items[i]
	}
	p.abandon(b.Tracker, items)
}

// settle decides what the answers mean, and writes the rows of the deliveries
// that end here. Those that need a hand-over first go to handOver, so that the
// rows of accepted deliveries wait only for the status store. Both end them.
func (p *Pipeline) settle(ctx context.Context, group []*Delivery) {
	push.PrefetchAll(len(group), func(i int) byte { return group[i].own() })
	now := time.Now()
	here, handing := p.decide(group, now)
	p.handOn(handing)
	err := p.record(ctx, here, now)
	p.noteSends(here, now)
	p.end(here, err)
}

// end ends each delivery: its row is durable, or it needs none; with an error,
// the next owner does it again. Its place in the window becomes free only now,
// because only now a hard kill can no longer make it be sent twice. An item whose
// last delivery ends goes on to remember, or to tell where its sender wants to know.
func (p *Pipeline) end(group []*Delivery, err error) {
	var last []*Item
	for i := range push.Prefetching(len(group), func(i int) byte { return byte(group[i].Verdict) + byte(group[i].Item.Verdict) }) {
		d := group[i]
		if d.abandoned || err != nil {
			atomic.OrUint32(&d.Item.marks, markAbandoned)
		}
		if s := d.share; s != nil {
			if d.inWindow {
				s.line.leaveWindow(1)
				s.completed.Add(1)
			} else {
				s.returned.Add(1)
			}
		}
		if atomic.AddInt32(&d.Item.unended, -1) == 0 {
			last = append(last, d.Item)
		}
	}
	p.ended(last)
}

// remember is the only way in which an item ends. First its id is added to the
// filter: the next owner trusts the filter about committed records. Then its
// tracker is told, and from then on the committer may commit it. Waiting for the
// filter delays nothing else: while it takes no ids, it answers no look-ups
// either. The items of a partition that leaves do not wait: the next owner
// confirms whatever is not committed.
func (p *Pipeline) remember(ctx context.Context, items []*Item) {
	items, abandoned := split(items, (*Item).isAbandoned)
	p.ending(items)
	p.noteLatest(ctx, items)
	noneLeft := func() bool {
		var leave []*Item
		items, leave = split(items, (*Item).leaving)
		letGo(append(leave, p.toRemember.remove((*Item).leaving)...), p.abandon)
		return len(items) == 0
	}
	err := p.repeat(ctx, StepFilter, noneLeft, func() error {
		err := p.opt.Seen.Add(ctx, seenIDs(items))
		if err != nil {
			p.opt.Metrics.missedAdds.Add(float64(len(items)))
		}
		return err
	})
	if err != nil { // ctx ended, or the partitions of all items leave
		items, abandoned = nil, append(abandoned, items...)
	}
	letGo(items, p.done)
	letGo(abandoned, p.abandon)
}

// ending counts items whose rows are durable, and notes what they came to for their
// trackers, which count it by ranges of offsets. An item whose devices all belong to
// another record by now ends as a copy.
func (p *Pipeline) ending(items []*Item) {
	told := p.opt.Events.Group(p.opt.Lane)
	came := make([]*Kind, 0, 2*len(items))
	for i := range push.Prefetching(len(items), func(i int) byte { return items[i].whole() }) {
		it := items[i]
		if it.Verdict == push.Undecided && it.claimed() {
			it.Decide(push.Duplicate, "", "")
		}
		if it.Verdict == push.Duplicate && !it.Reread {
			told.Duplicate(it)
		}
		from := len(came)
		came = it.kinds(told, came)
		it.Came = came[from:len(came):len(came)]
	}
	told.Count(time.Now())
	p.opt.Metrics.ended(p.opt.Lane, items)
}

// seenIDs returns the ids that the filter is to remember. A record without a usable
// id has none, and a reused id belongs to another record.
func seenIDs(items []*Item) []string {
	ids := make([]string, 0, len(items))
	for _, it := range items {
		if it.ID != "" && it.Reason != push.IDReused {
			ids = append(ids, it.ID)
		}
	}
	return ids
}

// letGo is the last step of items: mark tells their trackers, and batches of
// at_most_once, which wait in awaitOver, hear of each.
func letGo(items []*Item, mark func(*Tracker, []*Item)) {
	of := make(map[*Tracker][]*Item)
	for _, it := range items {
		of[it.batch.Tracker] = append(of[it.batch.Tracker], it)
	}
	for t, its := range of {
		mark(t, its)
	}
	for _, it := range items {
		if over := it.batch.over; over != nil {
			over <- struct{}{}
		}
	}
}

// done marks items of one tracker as done, and wakes the committer if much is
// done and not committed.
func (p *Pipeline) done(t *Tracker, items []*Item) {
	places := takePlaces(items)
	commit := t.Done(items)
	p.endLatest(t, places)
	if commit {
		select {
		case p.commitSoon <- struct{}{}:
		default: // asked already
		}
	}
}

// abandon gives items of one tracker back unfinished.
func (p *Pipeline) abandon(t *Tracker, items []*Item) {
	p.givenBack.add(t, takePlaces(items))
	t.Abandon(items)
	p.endLatest(t, nil)
}

// commitUntil is the only committer: it commits the watermarks at each interval,
// earlier if much is done, and once more when stop is closed.
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
				p.opt.Log.Warn("final commit failed: records finished since the previous commit will be redelivered and confirmed", "lane", p.opt.Lane, "error", err)
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
