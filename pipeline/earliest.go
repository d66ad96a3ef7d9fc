package pipeline

import (
	"math"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Overtaken is how long after its turn has come a delivery is still overtaken by what
// came later and expires sooner.
const Overtaken = 5 * time.Second

// earliest is what one partition has in a line whose lane sends first what expires
// first. It takes, in this order:
//
//  1. what is at the watermark while the tracker is full: nothing more is polled before
//     it is done;
//  2. what has had its turn 5 s ago, in the order in which it came. Its turn is when as
//     many of the partition have been taken as came before it;
//  3. what is critical, then what expires in the earliest second;
//  4. the others, which say of themselves no expiry, as they came.
//
// Each delivery is in places, in the order in which it came, and those of kind 3 are in
// a heap besides. What is taken by one way stays in the other until it comes to the
// front there: inLine is false then. So a delivery costs O(log n) and allocates nothing.
// The mu of its turns guards it.
type earliest struct {
	line    *line
	now     func() time.Time
	places  []place    // the first of them waits
	turned  int        // of places, from the first on: have had their turn
	early   int        // turns that belong to what was taken before, and is in places no more
	soonest []expiring // a heap
	gone    int        // of soonest: wait no more
	count   int        // that wait
	seq     uint32     // of the newest in soonest
}

// place is a delivery's place in the order in which they came.
type place struct {
	d    *Delivery
	turn time.Time // when it was its turn; zero = not yet
}

// expiring is a delivery with the second in which it expires. Of one second the first
// that came is first: these are sorted by the buckets of their rows.
type expiring struct {
	second, seq uint32
	d           *Delivery
}

func (a expiring) before(b expiring) bool {
	return a.second < b.second || a.second == b.second && int32(a.seq-b.seq) < 0
}

// The seconds of what has no expiry of its own, and of what goes before all that has.
const (
	never  = math.MaxUint32
	always = 0
)

// expirySecond is the Unix second in which an item expires, always if it is critical, or
// never. The lane's greatest age is no expiry: the oldest come first anyway.
func expirySecond(it *Item) uint32 {
	switch {
	case it.Priority == push.Critical:
		return always
	case it.ExpiresAt.IsZero():
		return never
	}
	return uint32(min(max(it.ExpiresAt.Unix(), always+1), never-1))
}

func (e *earliest) len() int { return e.count }

func (e *earliest) put(ds []*Delivery) {
	at := len(e.places)
	for at > 0 && e.places[at-1].d.Item.Offset > ds[0].Item.Offset {
		at--
	}
	var turn time.Time
	if at < e.turned { // what comes ahead of others that have had their turn has had it too
		turn = e.places[at].turn
		e.turned += len(ds)
	}
	e.insert(at, turn, ds)
}

// putBack adds what has been taken before, and goes before all others again.
func (e *earliest) putBack(ds []*Delivery) {
	turn := e.now().Add(-Overtaken)
	if e.turned > 0 && e.places[0].turn.Before(turn) {
		turn = e.places[0].turn
	}
	e.turned += len(ds)
	e.insert(0, turn, ds)
}

// insert adds deliveries at a place.
func (e *earliest) insert(at int, turn time.Time, ds []*Delivery) {
	end := len(e.places)
	e.places = slices.Grow(e.places, len(ds))[:end+len(ds)]
	copy(e.places[at+len(ds):], e.places[at:end])
	for i, d := range ds {
		d.inLine = true
		e.places[at+i] = place{d: d, turn: turn}
		if s := expirySecond(d.Item); s != never {
			e.seq++
			e.push(expiring{second: s, seq: e.seq, d: d})
		}
	}
	e.count += len(ds)
}

// next does not care for order, so that it need not look for what waits.
func (e *earliest) next(buf []*Delivery, n int) []*Delivery {
	n = min(n, e.count)
	for i := 0; i < len(e.soonest) && n > 0; i++ {
		if d := e.soonest[i].d; d.inLine {
			buf = append(buf, d)
			n--
		}
	}
	for i := 0; i < len(e.places) && n > 0; i++ {
		if d := e.places[i].d; d.inLine && expirySecond(d.Item) == never {
			buf = append(buf, d)
			n--
		}
	}
	return buf
}

func (e *earliest) take(buf []*Delivery, n int) []*Delivery {
	now, before := e.now(), len(buf)
	if n > 0 && e.count > 0 {
		buf = e.takeHolder(buf, n)
	}
	for len(buf)-before < n && e.count > 0 {
		d := e.places[0].d
		if !e.overdue(now) {
			if top := e.top(); top != nil {
				d = top.d
			}
		}
		buf = e.takeOne(buf, d)
	}
	e.pass(len(buf)-before, now)
	return buf
}

// takeHolder takes at most n deliveries of the record that a full tracker waits for. It
// is of the first batch that has something here, or is not here; unless something that
// was put back is ahead of it, which goes first then.
func (e *earliest) takeHolder(buf []*Delivery, n int) []*Delivery {
	b := e.places[0].d.Item.batch
	seq, full := b.Tracker.holder()
	if !full || seq-b.Items[0].seq >= uint64(len(b.Items)) {
		return buf
	}
	it := &b.Items[seq-b.Items[0].seq]
	for i := range it.Deliveries {
		if d := &it.Deliveries[i]; n > 0 && d.Route == e.line.Route && d.inLine {
			buf = e.takeOne(buf, d)
			n--
		}
	}
	return buf
}

// takeOne takes a delivery that waits.
func (e *earliest) takeOne(buf []*Delivery, d *Delivery) []*Delivery {
	d.inLine = false
	e.count--
	if len(e.soonest) > 0 && e.soonest[0].d == d {
		e.pop()
	} else if expirySecond(d.Item) != never {
		e.gone++
	}
	if e.gone > len(e.soonest)/2 {
		e.sweep()
	}
	e.trim()
	return append(buf, d)
}

// trim leaves nothing ahead of the first place that waits.
func (e *earliest) trim() {
	for len(e.places) > 0 && !e.places[0].d.inLine {
		e.places[0] = place{}
		e.places = e.places[1:]
		if e.turned > 0 {
			e.turned--
		} else {
			e.early++
		}
	}
	if e.count == 0 {
		e.places, e.soonest, e.gone = nil, nil, 0
	}
}

// pass lets n turns pass.
func (e *earliest) pass(n int, now time.Time) {
	used := min(n, e.early)
	e.early -= used
	for n -= used; n > 0 && e.turned < len(e.places); n-- {
		e.places[e.turned].turn = now
		e.turned++
	}
	if e.count == 0 {
		e.early = 0
	}
}

// overdue reports whether the first of places is not to be overtaken any more.
func (e *earliest) overdue(now time.Time) bool {
	return e.turned > 0 && now.Sub(e.places[0].turn) >= Overtaken
}

// urgency is the second of what is taken next; always for what is overdue.
func (e *earliest) urgency(now time.Time) uint32 {
	switch top := e.top(); {
	case e.overdue(now):
		return always
	case top != nil:
		return top.second
	}
	return never
}

// remove takes out what goes.
func (e *earliest) remove(goes func(*Delivery) bool) (out []*Delivery) {
	kept, turned := e.places[:0], 0
	for i, p := range e.places {
		if p.d.inLine && goes(p.d) {
			p.d.inLine = false
			e.count--
			out = append(out, p.d)
			continue
		}
		if i < e.turned {
			turned++
		}
		kept = append(kept, p)
	}
	clear(e.places[len(kept):])
	e.places, e.turned = kept, turned
	e.sweep()
	if e.trim(); e.count == 0 {
		e.early = 0
	}
	return out
}

// sweep leaves nothing in the heap that waits no more.
func (e *earliest) sweep() {
	kept := slices.DeleteFunc(e.soonest, func(x expiring) bool { return !x.d.inLine })
	e.soonest, e.gone = kept, 0
	for i := len(kept)/2 - 1; i >= 0; i-- {
		e.down(i)
	}
}

// top is the first of the heap that waits, or nil.
func (e *earliest) top() *expiring {
	for len(e.soonest) > 0 && !e.soonest[0].d.inLine {
		e.pop()
		e.gone = max(0, e.gone-1)
	}
	if len(e.soonest) == 0 {
		return nil
	}
	return &e.soonest[0]
}

func (e *earliest) push(x expiring) {
	e.soonest = append(e.soonest, x)
	h := e.soonest
	i := len(h) - 1
	for parent := (i - 1) / 2; i > 0 && x.before(h[parent]); parent = (i - 1) / 2 {
		h[i] = h[parent]
		i = parent
	}
	h[i] = x
}

// pop removes the first of the heap.
func (e *earliest) pop() {
	last := len(e.soonest) - 1
	e.soonest[0] = e.soonest[last]
	e.soonest[last] = expiring{}
	e.soonest = e.soonest[:last]
	if last > 1 {
		e.down(0)
	}
}

// down moves an element of the heap to where it belongs.
func (e *earliest) down(i int) {
	h := e.soonest
	x := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = x
}
