package pipeline

import (
	"strings"
	"sync"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Tracer follows the items that it chooses. Both methods are called by many goroutines at
// once.
type Tracer interface {
	// Follows reports whether an item that was polled now is to be followed. It is asked
	// about every item, and keeps nothing of it.
	Follows(it *Item) bool
	// Told takes the timeline of a followed item, exactly once: when its offset is
	// committed, or when it is left to the partition's next owner. It must not block.
	Told(*Timeline)
}

// Timeline is what one record was at, and when. Zero times did not come.
type Timeline struct {
	Caller    string // the record's traceparent; empty = none
	Lane      string
	ID        string
	App, Type string
	Step      int16
	Partition push.Partition
	Offset    int64

	Written   time.Time // when the record was produced
	Polled    time.Time
	Ended     time.Time // its outcome is durable
	Committed time.Time
	Outcome   string // what was decided about all of it; empty = about each device
	Stages    []Passed
	Sends     []Sent

	mu   sync.Mutex // guards Sends, to which several devices add at once
	item *Item
	told func(*Timeline)
}

// Passed is a stage that an item went through.
type Passed struct {
	Stage    Step
	From, To time.Time
}

// Sent is a delivery that has ended.
type Sent struct {
	Route     push.Route
	Submitted time.Time // zero = it was not sent
	Answered  time.Time
	Durable   time.Time // its row, and what was handed over before
	State     string    // of the row; empty = none
	Reason    string
}

// follow begins the timelines of a batch.
func (p *Pipeline) follow(b *Batch) {
	if p.opt.Tracer == nil {
		return
	}
	now := time.Now()
	for i := range b.Items {
		it := &b.Items[i]
		if !p.opt.Tracer.Follows(it) {
			continue
		}
		it.timeline = &Timeline{Caller: it.traceparent(), Lane: p.opt.Lane, ID: strings.Clone(it.RowID()), App: strings.Clone(it.App), Type: strings.Clone(it.Type),
			Step: it.Step(), Partition: it.Partition, Offset: it.Offset, Written: it.Timestamp.Time(), Polled: now, item: it, told: p.opt.Tracer.Told}
		b.followed = append(b.followed, it.timeline)
	}
}

// Traceparent is the name of the header by which callers say which trace a record belongs
// to, and whether that trace is sampled.
const Traceparent = "traceparent"

func (it *Item) traceparent() string {
	for i := range it.Trace {
		if it.Trace[i].Key == Traceparent {
			return string(it.Trace[i].Value)
		}
	}
	return ""
}

// undecided returns the timelines of a batch's items that a stage is about to judge.
func (b *Batch) undecided() (open []*Timeline) {
	for _, tl := range b.followed {
		if tl.item.Verdict == push.Undecided {
			open = append(open, tl)
		}
	}
	return open
}

// noteSends notes deliveries that have ended: answered, and since now durable.
func (p *Pipeline) noteSends(group []*Delivery, answered time.Time) {
	if p.opt.Tracer == nil {
		return
	}
	now := time.Now()
	for _, d := range group {
		tl := d.Item.timeline
		if tl == nil || d.abandoned || d.whole() {
			continue
		}
		sent := Sent{Route: d.Route, Submitted: d.sentAt.Time(), Answered: answered, Durable: now, Reason: string(d.ending.Reason)}
		if d.ending.State != 0 {
			sent.State = d.ending.State.String()
		}
		tl.mu.Lock()
		tl.Sends = append(tl.Sends, sent)
		tl.mu.Unlock()
	}
}

// ends notes the end of an item, and returns its timeline, which holds the item no more.
func (it *Item) ends(now time.Time) *Timeline {
	tl := it.timeline
	it.timeline, tl.item, tl.Ended = nil, nil, now
	if it.Verdict != push.Undecided {
		tl.Outcome = "DUPLICATE"
		if s := it.Verdict.State(); s != 0 {
			tl.Outcome = s.String()
		}
	}
	return tl
}

// committedTo returns the timelines below a committed offset; they are no longer the
// tracker's. The caller holds mu.
func (t *Tracker) committedTo(offset int64) (over []*Timeline) {
	if len(t.timelines) == 0 {
		return nil
	}
	stay := t.timelines[:0]
	for _, tl := range t.timelines {
		if tl.Offset < offset {
			over = append(over, tl)
		} else {
			stay = append(stay, tl)
		}
	}
	t.timelines = stay
	return over
}

// tellTimelines tells timelines that are over. at is when they were committed; zero = they
// were not. The caller does not hold mu.
func tellTimelines(over []*Timeline, at time.Time) {
	for _, tl := range over {
		tl.Committed = at
		tl.told(tl)
	}
}
