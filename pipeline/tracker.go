package pipeline

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Tracker knows, for one assignment of one partition, which records are open and
// the offset below which everything is done. A partition that is revoked and
// assigned again gets a new Tracker: a late answer reaches the old one, which is
// fenced, and cannot move the new owner's offset.
//
// It is a plain data structure: no Kafka, no goroutine. All methods are safe for
// concurrent use.
type Tracker struct {
	partition push.Partition
	retry     bool
	counts    bool
	capacity  int
	lease     Lease
	waiting   atomic.Int64              // admitted records that wait to be sent: not dispatched, decided or at their end
	full      atomic.Bool               // nothing more is polled before the watermark moves
	expiries  *expiries                 // of those that wait; nil = they are not counted
	left      atomic.Pointer[time.Time] // when it began to leave, nil = it does not. From then on what is not sent is abandoned
	leaving   chan struct{}             // closed by Leave

	// mu guards the fields below. A source holds its own locks when it calls a
	// Tracker; code that holds mu takes no other lock.
	mu        sync.Mutex
	base      uint64   // seq of records[0]
	records   []record // from the committed offset to the newest, in polled order
	passed    int      // how many of records are below the watermark: done but not yet committed
	open      map[string]uint64
	intents   map[int64]struct{} // offsets of intended records that are not done
	timelines []*Timeline        // of items that are done and not committed
	taken     int                // how many of records Take has counted
	ended     []ended            // what Take has not counted and no record holds
	confirms  int                // records from the start of the assignment that are still to be confirmed
	unseen    int64              // no former owner has read from this offset on; -1 = not known
	watermark int64              // next offset to commit; -1 until something is done
	committed int64              // as passed to Committed; -1 before
	next      int64              // the offset after the newest admitted record; -1 before the first
	active    int                // admitted, and neither done nor abandoned
	draining  bool
	revoked   bool
	idle      chan struct{} // closed when draining and active is 0
}

// record is one tracked record. Offsets have gaps (compaction, transactions), so
// records are kept in the order in which they were polled.
type record struct {
	offset   int64
	id       string
	produced int64 // Unix milliseconds
	done     bool
	kind     *Kind // what it came to, the first if there are several; nil = nothing, or it was taken
}

// TrackerOptions are the options of a Tracker.
type TrackerOptions struct {
	Partition push.Partition
	// Capacity is the most records between the committed offset and the newest
	// one; Free says how many more may be polled. It is counted from the
	// committed offset and not from the watermark, because the next owner starts
	// at the committed offset: the first Capacity records that it reads include
	// everything that a dead owner can have sent.
	Capacity int
	// Confirms is how many records from the start are marked for a confirm read,
	// because a dead owner may have sent them: that owner's Capacity. Records
	// below the committed offset that are read again are not counted. Unseen ends
	// it sooner.
	Confirms int
	// Retry is set for retry, deferral and hold topics.
	Retry bool
	// Expiries has those that wait counted by their expiry: for Sooner.
	Expiries bool
	// Lease is the member's right to send; nil = without end.
	Lease Lease
	// Counts makes it keep what records came to until Take.
	Counts bool
}

// Lease is a group member's right to send. A member that its group may have expelled
// without its knowledge sends nothing. Lapsed is called for each send, by many
// goroutines at once.
type Lease interface {
	Lapsed(now time.Time) bool
}

// NewTracker makes the tracker of one assignment.
func NewTracker(o TrackerOptions) *Tracker {
	t := &Tracker{
		partition: o.Partition, retry: o.Retry, counts: o.Counts, capacity: o.Capacity, confirms: o.Confirms, lease: o.Lease,
		open: make(map[string]uint64), intents: make(map[int64]struct{}), unseen: -1, watermark: -1, committed: -1, next: -1, idle: make(chan struct{}), leaving: make(chan struct{}),
	}
	if o.Expiries {
		t.expiries = new(expiries)
	}
	return t
}

// Partition returns the partition that this tracker was made for.
func (t *Tracker) Partition() push.Partition { return t.partition }

// Free returns how many more records may be admitted before the window is full.
func (t *Tracker) Free() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.capacity - len(t.records)
}

// Admit takes the items of b, in polled order, and returns how many it took.
// The caller admits nothing once it has called Drain or Fence.
//
// In a main topic it takes all items. A second copy of an id that is open here is
// decided as a Duplicate at once (its offset cannot be committed before that of
// the first copy); the same id for another user is decided as Dead.
//
// In a retry topic it stops before a second copy of an open id: the caller
// keeps the rest and asks again when the first copy is done, and then the
// confirm read decides.
func (t *Tracker) Admit(b *Batch) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range b.Items {
		push.Prefetch(i, len(b.Items), func(i int) byte { return b.Items[i].names() })
		it := &b.Items[i]
		user := push.UserHash(it.Owner())
		if it.ID != "" && it.Verdict != push.Dead {
			switch first, isOpen := t.open[it.ID]; {
			case !isOpen:
				t.open[it.ID] = user
			case t.retry:
				return i
			case first != user:
				it.Decide(push.Dead, push.IDReused, "")
			default:
				it.Decide(push.Duplicate, "", "")
			}
		}
		it.Confirm = it.Confirm || t.retry || t.confirms > 0 && (t.unseen < 0 || it.Offset < t.unseen)
		if !it.Reread {
			t.confirms = max(0, t.confirms-1)
		}
		it.batch, it.seq = b, t.base+uint64(len(t.records))
		rec := record{offset: it.Offset, produced: it.Timestamp.Time().UnixMilli()}
		if it.Verdict == push.Undecided {
			rec.id = it.ID
			t.waiting.Add(1)
			if t.expiries != nil {
				it.counted = t.expiries.add(it)
			}
		} else {
			it.marks |= markBegun
		}
		t.next = max(t.next, it.Offset+1)
		t.records = append(t.records, rec)
		t.active++
	}
	return len(b.Items)
}

// Unseen says that no former owner can have read the records from offset on, let alone
// have sent them: they are not confirmed for its sake; -1 = that is not known any more.
func (t *Tracker) Unseen(offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unseen = offset
}

// Done marks items as done: their outcome is durable. It may be called after a
// revoke, and then moves nothing. commit reports that much is done and not
// committed, so that the next commit should not wait for its interval.
func (t *Tracker) Done(items []*Item) (commit bool) {
	var over []*Timeline
	t.mu.Lock()
	defer func() { tellTimelines(over, time.Time{}) }()
	defer t.mu.Unlock()
	for i, it := range items {
		push.Prefetch(i, len(items), func(i int) byte {
			it := items[i]
			sum := byte(it.Verdict) + byte(it.Offset) + byte(len(it.Came)) + push.Ends(it.ID)
			if !it.intended { // else its record may be gone
				sum += byte(t.records[it.seq-t.base].offset)
			}
			return sum
		})
		t.begins(it)
		if it.timeline != nil {
			tl := it.ends(time.Now())
			if t.revoked || it.Offset < t.committed { // no commit will come
				over = append(over, tl)
			} else {
				t.timelines = append(t.timelines, tl)
			}
		}
		if it.intended {
			delete(t.intents, it.Offset)
			delete(t.open, it.ID) // its offset was already passed by Intend
			t.count(it, nil)
			continue
		}
		rec := &t.records[it.seq-t.base]
		rec.done = true
		t.count(it, rec)
		if rec.id != "" {
			delete(t.open, rec.id)
		}
	}
	t.advance()
	t.leave(len(items))
	return t.passed > t.capacity/commitEarly
}

// Intend lets the offsets of items be committed before their outcome is known,
// because their intents are durable. The items stay in flight, and their ids
// open, until Done or Abandon.
func (t *Tracker) Intend(items []*Item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, it := range items {
		it.intended = true
		t.intents[it.Offset] = struct{}{}
		t.records[it.seq-t.base].done = true
	}
	t.advance()
}

func (t *Tracker) advance() {
	for t.passed < len(t.records) && t.records[t.passed].done {
		t.watermark = t.records[t.passed].offset + 1
		t.passed++
	}
}

// commitEarly sets when to commit ahead of the interval: when more than
// 1/commitEarly of the capacity is done and not committed, since that leaves less
// room for polling.
const commitEarly = 4

// Committed tells the tracker that the group has committed this offset. Records
// below it that are done no longer take up room.
func (t *Tracker) Committed(offset int64) {
	t.mu.Lock()
	over := t.committedTo(offset)
	defer func() { tellTimelines(over, time.Now()) }()
	defer t.mu.Unlock()
	t.committed = max(t.committed, offset)
	n := 0
	for n < t.passed && t.records[n].offset < offset {
		n++
	}
	t.keepKinds(n)
	clear(t.records[:n])
	t.records, t.base, t.passed = t.records[n:], t.base+uint64(n), t.passed-n
}

// Abandon gives items back unfinished: they stay open and hold the watermark, and
// the next owner reads them again.
func (t *Tracker) Abandon(items []*Item) {
	var over []*Timeline
	for _, it := range items {
		t.begins(it)
		if it.timeline != nil {
			over = append(over, it.ends(time.Time{}))
		}
	}
	tellTimelines(over, time.Time{})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(len(items))
}

// leave notes that n items are no longer in flight. The caller holds mu.
func (t *Tracker) leave(n int) {
	t.active -= n
	if !t.draining || t.active > 0 {
		return
	}
	select {
	case <-t.idle:
	default:
		close(t.idle)
	}
}

// Watermark returns the offset to commit: everything below it is done. ok is
// false if nothing is done yet or the partition is no longer ours.
func (t *Tracker) Watermark() (next int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watermark, t.watermark >= 0 && !t.revoked
}

// IsCommitted reports whether the group has committed past the item, and whether
// that is still possible: a fenced assignment commits nothing more.
func (t *Tracker) IsCommitted(it *Item) (done, possible bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	done = t.committed > it.Offset
	return done, done || !t.revoked
}

// Uncommitted returns how many records lie between the committed offset and the
// newest one.
func (t *Tracker) Uncommitted() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.records)
}

// Open returns how many records lie between the watermark and the newest one.
func (t *Tracker) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.records) - t.passed
}

// Oldest returns when the record at the watermark was produced, the first one that is
// not done; zero if all are done.
func (t *Tracker) Oldest() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.passed == len(t.records) {
		return time.Time{}
	}
	return time.UnixMilli(t.records[t.passed].produced)
}

// begins notes that an item waits to be sent no more, and reports whether it did until
// now. It may be called again, and takes no lock.
func (t *Tracker) begins(it *Item) bool {
	if atomic.LoadUint32(&it.marks)&markBegun != 0 || atomic.OrUint32(&it.marks, markBegun)&markBegun != 0 {
		return false
	}
	t.waiting.Add(-1)
	if it.counted > 0 {
		t.expiries.left(it)
	}
	return true
}

// countAgain counts by its expiry an item whose priority is another one now. It may not
// be called together with begins of the same item.
func (t *Tracker) countAgain(it *Item) {
	if t.expiries == nil || atomic.LoadUint32(&it.marks)&markBegun != 0 {
		return
	}
	if it.counted > 0 {
		t.expiries.left(it)
	}
	it.counted = t.expiries.add(it)
}

// Waiting returns how many of the admitted records wait to be sent: nothing has decided
// them, and no device's send has begun. It takes no lock.
func (t *Tracker) Waiting() int64 { return t.waiting.Load() }

// Backlog returns how many records of the partition wait to be sent if its log ends at
// end: the admitted ones that do, and all that are not admitted yet. Offsets without
// records count too.
func (t *Tracker) Backlog(end int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.waiting.Load()
	if t.next >= 0 && end > t.next {
		n += end - t.next
	}
	return n
}

// Ahead returns how many records of the partition wait ahead of an admitted one, at
// least: those behind it count as waiting, whether they do or not.
func (t *Tracker) Ahead(it *Item) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	behind := int64(t.base) + int64(len(t.records)) - 1 - int64(it.seq)
	return max(0, t.waiting.Load()-behind-1)
}

// Sooner returns how many of those that wait are critical, or say an expiry that is no
// later than that of an item that waits, which is one of them; ok = false if that is too far ahead to be
// counted, or nothing is. It takes no lock.
func (t *Tracker) Sooner(it *Item, now time.Time) (n int64, ok bool) {
	if t.expiries == nil || it.ExpiresAt.IsZero() {
		return 0, false
	}
	return t.expiries.until(it.ExpiresAt, now)
}

// SetFull says whether nothing more is polled of the partition before its watermark has
// moved. It takes no lock.
func (t *Tracker) SetFull(full bool) { t.full.Store(full) }

// Full is what SetFull said last.
func (t *Tracker) Full() bool { return t.full.Load() }

// holder returns which record a full tracker waits for, by its number; ok = false if it
// is not full or waits for none.
func (t *Tracker) holder() (seq uint64, ok bool) {
	if !t.Full() {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.base + uint64(t.passed), t.passed < len(t.records)
}

// Leave requests that everything that has not been sent be abandoned, and does not
// wait. Items may still be admitted; they are abandoned too.
func (t *Tracker) Leave() {
	if now := time.Now(); t.left.CompareAndSwap(nil, &now) {
		close(t.leaving)
	}
}

// inFlight reports whether something of the assignment is neither done nor abandoned.
func (t *Tracker) inFlight() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.active > 0
}

// over reports whether the assignment has ended and nothing of it is in flight.
func (t *Tracker) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.revoked && t.active == 0
}

// Drain requests that everything that has not been sent be abandoned, and waits
// until every admitted record is done or abandoned, or ctx ends. It may be called
// twice. If nothing is in flight it returns nil even if ctx has ended.
func (t *Tracker) Drain(ctx context.Context) error {
	t.mu.Lock()
	t.draining = true
	t.Leave()
	t.leave(0)
	t.mu.Unlock()
	select {
	case <-t.idle:
		return nil
	default: // a select over both would choose at random if both are ready
	}
	select {
	case <-t.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Draining reports whether items that have not been sent must be abandoned.
func (t *Tracker) Draining() bool { return t.left.Load() != nil }

// Left returns when the partition began to leave, by a clock that nobody sets; nil = it
// does not leave.
func (t *Tracker) Left() *time.Time { return t.left.Load() }

// Unresolved returns the offset of the first record that has an intent but no
// result, even if it was abandoned: the next owner must read from there again,
// although it is committed. ok is false if there is none. If called after
// Watermark, it covers all records below that watermark.
func (t *Tracker) Unresolved() (from int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for offset := range t.intents {
		if !ok || offset < from {
			from, ok = offset, true
		}
	}
	return from, ok
}

// Lapsed reports whether nothing more may be sent for this assignment: it is
// leaving, or the member's lease has lapsed and is not renewed yet. It takes no
// lock, because connections ask before every flush.
func (t *Tracker) Lapsed(now time.Time) bool {
	return t.Draining() || t.lease != nil && t.lease.Lapsed(now)
}

// Fence ends the assignment: from then on Watermark returns ok = false. Both take
// mu, so a watermark read after Fence has returned is never committed.
func (t *Tracker) Fence() {
	t.mu.Lock()
	over := t.committedTo(math.MaxInt64)
	defer func() { tellTimelines(over, time.Time{}) }()
	defer t.mu.Unlock()
	t.draining, t.revoked = true, true
	t.Leave()
	t.leave(0)
}
