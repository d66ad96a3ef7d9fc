// Package pipeline is the way of a notification from the poll to the commit,
// and owns the nouns on it: Message, Item, Batch, Delivery, Result, Row,
// Tracker. It declares as small interfaces what it needs of the rest, and
// imports nothing of ours.
//
// START HERE. One Pipeline serves one topic of one lane, and this file is the
// whole way, top to bottom:
//
//	Source ── Next ──▶ stage ──▶ stage ──▶ … ──▶ send ──▶ dispatch ──▶ Provider
//	(Kafka)            dedupe    preferences     │ a goroutine for each     │
//	   ▲               limits    devices         │ route and charge         │ results in groups
//	   │                                         │ decided before           ▼
//	   │                                         │ sending               settle: rows as answers arrive
//	   │                                         ▼                          │ items whose last device answered
//	   └─ Commit ◀── Tracker.Done ◀── Seen.Add ◀── Status.Write ◀── Produce ◀── finish
//
// A batch has one owner at a time up to send; from there its items go each
// their own way, and meet again only in the Tracker, which knows up to where
// everything is done.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options are a Pipeline's collaborators and numbers. All are required unless
// said otherwise.
type Options struct {
	Lane     string // its name in metrics and logs
	Source   Source
	Stages   []Stage // in order
	Routes   map[Route]Provider
	Producer Producer
	Status   Status
	Ledger   Ledger
	Seen     Seen
	Policy   Policy
	// Once is set for lanes of mode at_most_once: see sendOnce.
	Once bool

	// Gates are those of the worker's routes, shared by its lanes; nil = gates of
	// its own.
	Gates *Gates
	// Events, unless nil, gathers what push.events is to tell.
	Events *Events
	// Latest, unless nil, takes note of what was accepted under a collapse key.
	Latest Latest

	// StageWorkers is how many batches a stage works on at once.
	StageWorkers int
	// Window bounds, for each route, the sends in flight plus the answers whose
	// status row is not durable yet: what a hard kill can send twice.
	Window int
	// SendDeadline is when a send without an answer counts as AMBIGUOUS.
	SendDeadline time.Duration
	// Drain is how long, after Run's ctx ended, work in flight may take before
	// it is abandoned to the next owner.
	Drain time.Duration
	// StatusTimeout is when a status write that is not acknowledged counts as
	// failed and is tried again.
	StatusTimeout time.Duration
	// CommitInterval is the pause between two commits.
	CommitInterval time.Duration

	Metrics *Metrics
	Log     *slog.Logger
	// Answered, if set, sees every group of deliveries with their results,
	// before anything is written. It must be quick and keep nothing.
	Answered func([]*Delivery)
}

// Pipeline is one topic's way from poll to commit.
type Pipeline struct {
	Options
	routes map[Route]*route

	// confirmFor is how long a confirm read lets its item be sent.
	confirmFor time.Duration

	// answered holds deliveries that came back; settle workers take them.
	// Closed by Run once none is out any more.
	answered *queue[*Delivery]
	// commitSoon asks the committer not to wait for its interval. Of one place,
	// never closed.
	commitSoon chan struct{}
	// stalls are why it stands still, while it does.
	stalls Stalls
	// out counts deliveries from send to the end of their settle.
	out sync.WaitGroup
}

// settleWorkers is how many groups of answers are written and finished at
// once: enough to keep the status store busy while each waits for its acks.
const settleWorkers = 16

// settleGroup is the most answers one settle takes: larger groups fill larger
// batches per status bucket, smaller ones are durable sooner.
const settleGroup = 2000

// New checks the options and makes a Pipeline. Nothing runs before Run.
func New(o Options) (*Pipeline, error) {
	switch {
	case o.Source == nil, o.Producer == nil, o.Status == nil, o.Ledger == nil, o.Seen == nil, o.Metrics == nil, o.Log == nil:
		return nil, errors.New("pipeline: a collaborator is missing")
	case o.StageWorkers < 1, o.Window < 1, o.SendDeadline <= 0, o.Drain <= 0, o.StatusTimeout <= 0, o.CommitInterval <= 0:
		return nil, errors.New("pipeline: stage workers, window, send deadline, drain, status time-out and commit interval must be positive")
	case len(o.Policy.RetryDelays) == 0:
		return nil, errors.New("pipeline: retries need a delay")
	case o.SendDeadline+o.StatusTimeout >= o.Drain:
		return nil, fmt.Errorf("pipeline: send deadline %v + status time-out %v must be under the drain budget %v", o.SendDeadline, o.StatusTimeout, o.Drain)
	}
	p := &Pipeline{Options: o, routes: make(map[Route]*route, len(o.Routes)), confirmFor: o.confirmFor(), answered: newQueue[*Delivery](),
		commitSoon: make(chan struct{}, 1)}
	if p.Gates == nil {
		var err error
		if p.Gates, err = NewGates(slices.Collect(maps.Keys(o.Routes)), DefaultGateOptions(), o.Metrics, o.Log, time.Now()); err != nil {
			return nil, err
		}
	}
	for r, provider := range o.Routes {
		gate := p.Gates.Of(r)
		if gate == nil {
			return nil, fmt.Errorf("pipeline: route %s has no gate", r)
		}
		p.routes[r] = newRoute(r, provider, gate, o.Window, o.Metrics)
	}
	o.Metrics.bound(o.Lane, len(p.routes)*o.Window)
	o.Metrics.steps(o.Lane, o.Stages)
	return p, nil
}

// Run polls, works and commits until ctx ends or the source fails. Then it
// stops polling, finishes what is in flight within the drain budget, commits
// once more and returns: nil after ctx, else the source's error. What is not
// finished by then is abandoned, holds the watermark, and comes again to the
// next owner.
func (p *Pipeline) Run(ctx context.Context) error {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	polling, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(polling, func() { time.AfterFunc(p.Drain, abandon) })()

	var committer, dispatchers, settlers sync.WaitGroup
	stopCommitting := make(chan struct{}) // closed below, once everything is settled
	committer.Go(func() { p.commitUntil(work, stopCommitting) })
	for _, r := range p.routes {
		for _, l := range r.lines {
			dispatchers.Go(func() { p.dispatch(work, l) })
		}
	}
	for range settleWorkers {
		settlers.Go(func() { p.settleAll(work) })
	}

	batches, failed := p.poll(polling, stop)
	for _, s := range p.Stages {
		batches = p.through(work, s, batches)
	}
	send := p.sendAll
	if p.Once {
		send = p.sendOnce
	}
	send(work, batches) // returns when polling and all stages ended

	for _, r := range p.routes {
		for _, l := range r.lines {
			l.waiting.close()
		}
	}
	dispatchers.Wait()
	p.out.Wait()
	p.answered.close()
	settlers.Wait()
	close(stopCommitting)
	committer.Wait()
	return <-failed
}

// poll hands out batches until ctx ends or the source fails, and then closes
// the channel, calls stop and leaves one value in failed.
func (p *Pipeline) poll(ctx context.Context, stop func()) (<-chan *Batch, <-chan error) {
	batches, failed := make(chan *Batch), make(chan error, 1)
	go func() {
		defer close(batches)
		defer stop()
		for {
			b, err := p.Source.Next(ctx)
			if err != nil {
				if ctx.Err() != nil {
					err = nil
				}
				failed <- err
				return
			}
			p.Metrics.polled(p.Lane, b)
			if b.Poisoned != nil {
				p.poisoned(*b.Poisoned)
			}
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
	n := p.StageWorkers
	if p.Once {
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
	err := p.repeat(ctx, s.Name(), b.Tracker.Draining, func() error { return Contain(ctx, s, b, p.poisoned) })
	p.Metrics.stage(p.Lane, s.Name(), time.Since(start))
	return err == nil && !b.Tracker.Draining()
}

func abandonBatch(b *Batch) {
	items := make([]*Item, len(b.Items))
	for i := range b.Items {
		items[i] = &b.Items[i]
	}
	b.Tracker.Abandon(items)
}

// settleAll takes groups of answers until there are no more.
func (p *Pipeline) settleAll(ctx context.Context) {
	var group []*Delivery
	for {
		group = p.answered.take(group, settleGroup)
		if len(group) == 0 {
			return
		}
		p.settle(ctx, p.sendLater(group))
	}
}

// settle writes the rows of answers that are final, as they arrive, and
// finishes the items whose last device has answered. Only then has a hard kill
// nothing left to send twice, and the window opens again.
func (p *Pipeline) settle(ctx context.Context, group []*Delivery) {
	if p.Answered != nil {
		p.Answered(group)
	}
	p.Metrics.answered(p.Lane, group)
	p.poisonedSends(group)
	now, told := time.Now(), p.Events.Group(p.Lane)
	decide(p.Policy, group, now)
	p.Metrics.ambiguous(group)
	accepted, other := answerRows(group, told, now)
	err := p.writeStatus(ctx, accepted)
	if err == nil { // only now, so that what was accepted waits for nobody
		err = p.produce(ctx, failureEvents(nil, told, now))
	}
	if err == nil {
		err = p.writeStatus(ctx, other)
	}
	if err == nil {
		told.Count(now)
	}

	var last []*Item
	for _, d := range group {
		d.abandoned = d.abandoned || err != nil
		if d.inWindow {
			p.routes[d.Route].settled(1)
		}
		p.routes[d.Route].completed.Add(1)
		if atomic.AddInt32(&d.Item.unanswered, -1) == 0 {
			last = append(last, d.Item)
		}
	}
	p.finish(ctx, last)
	p.out.Add(-len(group))
}

// finish is the only way an item ends. Each step is done before the next one
// starts, so a crash in between repeats work and never loses any. A step that
// fails is repeated until it works or the worker stops; meanwhile the tracker
// fills, polling pauses and the lag grows.
func (p *Pipeline) finish(ctx context.Context, items []*Item) {
	items, abandoned := splitAbandoned(items)
	err := p.finishSteps(ctx, items)
	if err != nil { // ctx ended or the partitions leave: the next owner does it again
		items, abandoned = nil, append(abandoned, items...)
	}
	turns := turnsOf(items, abandoned)
	forTrackers(items, p.done) // 4. from here the committer may commit (5.)
	forTrackers(abandoned, (*Tracker).Abandon)
	for _, b := range turns {
		b.unsettled.Done()
	}
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

// finishSteps does the steps of finish that can fail.
func (p *Pipeline) finishSteps(ctx context.Context, items []*Item) error {
	if len(items) == 0 {
		return nil
	}
	now, told := time.Now(), p.Events.Group(p.Lane)
	rows := endRows(items, told, now)
	// 1. What does not end here is handed over, and acknowledged.
	if err := p.produce(ctx, failureEvents(handovers(items), told, now)); err != nil {
		return err
	}
	// 2. Every other row of these items is durable.
	if err := p.writeStatus(ctx, rows); err != nil {
		return err
	}
	p.Metrics.ended(p.Lane, items)
	told.Count(now)
	p.noteLatest(ctx, items)
	// 3. The filter knows them, or is known not to, before anything is
	// committed: the next owner may trust it. While it cannot be told, nothing
	// new can be asked of it either, so waiting holds up nobody. A partition
	// that leaves does not wait: its next owner confirms what is not committed.
	leaving := func() bool { return allLeaving(items) }
	return p.repeat(ctx, "filter", leaving, func() error {
		err := p.Seen.Add(ctx, seenIDs(items))
		if err != nil {
			p.Metrics.missedAdds.Add(float64(len(items)))
		}
		return err
	})
}

// commitUntil is the one committer: it commits the watermarks at the interval
// or when much is done, and once more when stop is closed.
func (p *Pipeline) commitUntil(ctx context.Context, stop <-chan struct{}) {
	ticker := time.NewTicker(p.CommitInterval)
	defer ticker.Stop()
	soon := p.commitSoon
	for {
		select {
		case <-ticker.C:
			soon = p.commitSoon
		case <-soon:
		case <-stop:
			if err := p.Source.Commit(ctx); err != nil {
				p.Log.Warn("last commit failed: what is done since the one before comes again and is confirmed", "lane", p.Lane, "error", err)
			}
			return
		}
		// Not repeated in place: the next tick has a newer watermark.
		if err := p.Source.Commit(ctx); err != nil && ctx.Err() == nil {
			soon = nil // not before the next tick
			p.Log.Warn("commit failed", "lane", p.Lane, "error", err)
		}
	}
}
