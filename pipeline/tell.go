package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Ends makes the records by which senders are told of every end of theirs. What is told
// is acknowledged before the offset is committed, so whoever dies in between leaves it to
// the next owner, who tells it from the rows. Others' notifications cost one look into a
// map of a few names.
type Ends interface {
	// Senders are those who are told. They do not change.
	Senders() []string
	// Record is the value that tells what is known of an item's notification: rows are
	// those that were read of it, and its own, which are durable. nil = nothing of it
	// has ended.
	Record(it *Item, rows []push.Row) []byte
}

// telling is how it goes with one sender: a topic that takes nothing keeps nobody else's
// waiting. Apart from the queue it belongs to the one worker of that.
type telling struct {
	sender string
	queue  *queue[*Item] // all deliveries of the item have ended, and it is to be told

	trouble // zero while the topic takes what it is given
}

// tellings returns one for each sender who is told.
func (o *Options) tellings() map[string]*telling {
	if o.Ends == nil {
		return nil
	}
	all := make(map[string]*telling)
	for _, sender := range o.Ends.Senders() {
		all[sender] = &telling{sender: sender, queue: newQueue[*Item]()}
		o.Metrics.deadEnds(o.Lane, sender, 0)
	}
	return all
}

// ended passes items on whose last delivery has ended: to remember, or first to tell.
func (p *Pipeline) ended(items []*Item) {
	if len(p.toTell) == 0 {
		p.toRemember.put(items...)
		return
	}
	for _, it := range items {
		if s := p.toTell[it.SenderID]; s != nil && !it.isAbandoned() {
			s.queue.put(it)
		} else {
			p.toRemember.put(it)
		}
	}
}

// tellers starts the workers of tell, one for each sender.
func (p *Pipeline) tellers(ctx context.Context) (all []*sync.WaitGroup) {
	for _, s := range p.toTell {
		all = append(all, eachGroup(1, s.queue, func(its []*Item) { p.tell(ctx, s, its) }))
	}
	return all
}

// endTelling waits until everything has been told.
func (p *Pipeline) endTelling(tellers []*sync.WaitGroup) {
	for _, s := range p.toTell {
		s.queue.close()
	}
	for _, w := range tellers {
		w.Wait()
	}
}

// tell produces what a sender is told of its items, and passes them on to remember. The
// items of a partition that leaves do not wait: its next owner tells of what is not
// committed.
func (p *Pipeline) tell(ctx context.Context, s *telling, items []*Item) {
	hs := make([]Handover, 0, len(items))
	for _, it := range items {
		var value []byte
		if survived(StepTell, func() error { value = p.opt.Ends.Record(it, it.known()); return nil }) != nil {
			p.opt.Metrics.failedStep(p.opt.Lane, StepTell)
		}
		if value == nil {
			p.toRemember.put(it)
			continue
		}
		hs = append(hs, Handover{To: ToEnds, Item: it, Event: value, EndedAt: time.Now()})
	}
	letGo := func(gone []*Item) {
		for _, it := range gone {
			atomic.OrUint32(&it.marks, markAbandoned)
		}
		p.toRemember.put(gone...)
	}
	noneLeft := func() bool {
		leaves := func(h Handover) bool { return h.Item.leaving() }
		for _, h := range hs {
			if leaves(h) {
				letGo([]*Item{h.Item})
			}
		}
		hs = slices.DeleteFunc(hs, leaves)
		letGo(s.queue.remove((*Item).leaving))
		return len(hs) == 0
	}
	if len(hs) == 0 {
		return
	}
	err := p.repeat(ctx, StepTell, noneLeft, func() (err error) {
		hs, err = p.tellOrBury(ctx, s, hs)
		return err
	})
	if err != nil { // ctx ended, or the partitions of all items leave
		for _, h := range hs {
			letGo([]*Item{h.Item})
		}
		if !s.alone { // else nothing says that it goes on
			s.trouble = trouble{}
		}
	}
}

// produceEnds produces hand-overs of ends to one of their topics, and passes on the items
// of those that are taken. It returns the others, with an error.
func (p *Pipeline) produceEnds(ctx context.Context, to Destination, hs []Handover) ([]Handover, error) {
	for i := range hs {
		hs[i].To = to
	}
	err := p.patiently(ctx, StepTell, nil, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, p.opt.CommitTimeout) // so that it is seen what leaves
		defer cancel()
		return p.opt.Producer.Produce(ctx, hs)
	})
	return p.untold(hs, err)
}

// untold passes on what has been told, and returns the rest: after an error that names
// what is left, that; after another one all. What is too large for its topic cannot be
// told, ever.
func (p *Pipeline) untold(hs []Handover, err error) ([]Handover, error) {
	open, refused := []int{}, []int{}
	if partly, ok := errors.AsType[*PartlyError](err); ok {
		open, refused = partly.Open, partly.Refused
		if len(refused) > 0 {
			p.opt.Log.Error("a sender is not told of an end: the record is too large for its topic", "lane", p.opt.Lane, "records", len(refused), "error", err)
		}
	} else if err != nil {
		return hs, err
	}
	for i, h := range hs {
		if slices.Contains(open, i) {
			continue
		}
		if h.To == ToDeadEnds && !slices.Contains(refused, i) {
			p.opt.Metrics.deadEnds(p.opt.Lane, h.Item.SenderID, 1)
		}
		p.toRemember.put(h.Item)
	}
	if hs = those(hs, open); len(hs) == 0 {
		return nil, nil
	}
	return hs, err
}

// known are the rows of the item's notification: what a confirm read found, and those
// that this item has written.
func (it *Item) known() []push.Row {
	var rows []push.Row
	if it.History != nil {
		rows = slices.Clone(it.History.Rows)
	}
	if it.rowsAt != 0 {
		rows = it.verdictRows(rows, time.Unix(0, it.rowsAt))
	}
	for i := range it.Deliveries {
		if d := &it.Deliveries[i]; d.rowAt != 0 { // else another record has the device
			rows = append(rows, d.row(d.ending.State, d.ending.Reason, time.Unix(0, d.rowAt)))
		}
	}
	return rows
}

// endedAt is where it is noted of when the rows are.
func (d *Delivery) endedAt() *int64 {
	if d.whole() {
		return &d.Item.rowsAt
	}
	return &d.rowAt
}
