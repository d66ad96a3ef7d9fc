package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
)

// span is one batch that has been handed out. Its bytes are free again once its
// records are committed.
type span struct {
	upTo  uint64 // of assignment.admitted
	bytes int
}

// assignment is one assignment of one partition: its tracker, and the records
// that are polled but not yet handed out. A partition that is assigned again gets
// a new one (F15), so that late events cannot affect it.
//
// It knows no client and no clock. Its Source's lock guards it, except where a
// field says otherwise.
type assignment struct {
	// cutting is held while a batch is cut, decoded and admitted, and while the
	// assignment ends: nothing is admitted once a drain has begun. It is taken
	// before the Source's lock.
	cutting sync.Mutex

	options   *SourceOptions
	topic     *topic
	partition push.Partition
	tracker   *pipeline.Tracker
	limits    limits

	// predecessors are the trackers of earlier assignments of this partition that
	// ended here with work in flight. Nothing is handed out before that work has
	// come back or their time is over: otherwise a record could be sent while its
	// first copy is in flight.
	predecessors []predecessor

	ended   bool            // given back, or lost: takes and hands out nothing
	lost    bool            // ended because the coordinator no longer knew us
	anew    bool            // lost, but ours in a later session: reclaimLost replaces it
	stopped *PartitionError // why it takes no more records; permanent
	// failing is the last fetch error, if no record came since; failingSince is
	// when the fetches began to fail. The client keeps trying.
	failing      error
	failedAt     time.Time
	failingSince time.Time
	spoiltSince  time.Time // when fetched data began to be spoilt; zero = it is not
	crowdedAt    time.Time // when there was last no room to unpack a fetch

	pages        pages
	waiting      []polledRecord
	waitingBytes int
	settled      int             // how many of waiting, from the first on, wait for no more records
	since        time.Time       // when the assignment began
	outlasted    bool            // no former owner can send any more
	rest         []pipeline.Item // decoded, but the tracker could not take them yet
	restAt       time.Time       // when to offer them again
	busy         bool            // a batch is being cut
	// unread are the offsets after waiting whose records cannot be unpacked;
	// empty = none. The client is sent on when they have been taken.
	unread Range
	onward *kgo.EpochOffset // where the client is to fetch on behind them; nil = it does
	held   bool             // the client is told not to fetch it
	anewAt time.Time        // when it was last fetched again because of a dropped error

	spans     []span
	spanBytes int
	admitted  uint64

	paused    bool  // for lack of room; kept for the hysteresis of full
	next      int64 // the offset after the newest polled; -1 before the first
	committed int64 // -1 = not known
	// told is where the last range that was told ends, and toldCommitted where the last one
	// ends whose commit is acknowledged; -1 = none has been cut yet.
	told, toldCommitted int64
	// reread is the committed offset when the assignment began, if records below
	// it are read again; otherwise 0.
	reread int64
	// begun is where reading began then: the position until the first record comes.
	begun int64
	high  int64 // the log's end; -1 = not known
	epoch int32 // the highest of the partition's leaders that is known; -1 = none
	from  int64 // the log's first offset, when nothing was committed; -1 = not known
	empty int64 // below this offset there are no more records to read; -1 = not known

	answeredAt time.Time // when a broker last answered for it
	mark       int64     // the watermark at the last look
	movedAt    time.Time // when it had moved, or had nothing to move for
}

func newAssignment(o *SourceOptions, t *topic, partition int32, lease pipeline.Lease, now time.Time) *assignment {
	p := t.partition(partition)
	return &assignment{
		options: o, topic: t, partition: p, limits: t.limits(o, 1),
		tracker: pipeline.NewTracker(pipeline.TrackerOptions{Partition: p, Capacity: o.window(), Confirms: o.Confirms, Retry: t.delayed(), Expiries: o.Expiries, Lease: lease, Counts: o.Tell != nil}),
		told:    -1, toldCommitted: -1, next: -1, committed: -1, high: -1, epoch: -1, from: -1, empty: -1, since: now,
	}
}

// predecessor is an earlier assignment's work in flight, and until when it is
// waited for.
type predecessor struct {
	tracker *pipeline.Tracker
	until   time.Time
}

// after makes a wait for the work in flight of an earlier assignment, and for
// the work that the earlier one was itself waiting for.
func (a *assignment) after(former *assignment, until time.Time) {
	a.predecessors = append(a.predecessors, former.predecessors...)
	if !idle(former.tracker) {
		a.predecessors = append(a.predecessors, predecessor{former.tracker, until})
	}
}

// waitsForFormer reports whether work of an earlier assignment is still awaited.
func (a *assignment) waitsForFormer(now time.Time) bool {
	a.predecessors = slices.DeleteFunc(a.predecessors, func(p predecessor) bool { return !now.Before(p.until) || idle(p.tracker) })
	return len(a.predecessors) > 0
}

// idle reports whether everything that a draining tracker admitted has come back.
func idle(t *pipeline.Tracker) bool {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return t.Drain(ended) == nil
}

// begin notes where the group stands: reading starts there, or before it if
// something is to be read again. from is the log's first offset.
func (a *assignment) begin(at stand, from int64) (start int64) {
	a.committed = at.committed
	switch {
	case a.options.Reread == 0:
		return at.committed
	case at.unresolved >= 0:
		start = at.unresolved
	default: // another program's commit: as many offsets as a batch has records
		start = at.committed - int64(a.options.Reread)
	}
	if start = max(from, start); start < at.committed {
		a.reread, a.begun = at.committed, start
		return start
	}
	return at.committed
}

// take adds polled records, and returns their bytes as they came. A partition of a retry,
// deferral or hold topic stops at the first record whose headers cannot be read: that record
// and all after it stay in Kafka.
func (a *assignment) take(records []*kgo.Record, now time.Time) (bytes int) {
	a.waiting = slices.Grow(a.waiting, len(records))
	for _, r := range records {
		if a.ended || a.stopped != nil {
			return bytes
		}
		a.doubt(r.LeaderEpoch)
		h, err := a.keep(r, now)
		if err != nil {
			a.stopped = &PartitionError{Partition: a.partition, Offset: r.Offset, Err: err}
			return bytes
		}
		bytes += h.size
		if h.due, _ = a.topic.due(&h); h.due.Before(now) {
			h.due = now
		}
		if a.topic.Kind == Hold {
			a.hurry(h.due)
		}
		a.waiting = append(a.waiting, h)
		a.waitingBytes += h.bytes()
		a.next = r.Offset + 1
		a.failing, a.spoiltSince = nil, time.Time{}
	}
	return bytes
}

// leaveOut notes a batch that cannot be unpacked. Until its records are taken, the client
// stays before it: it fetches nothing more of a partition of which it has told that. If it
// were sent on at once, it might have the next such error when the partition is paused, and
// drop it with all that it holds of a paused one: see fetchDropped.
func (a *assignment) leaveOut(e *kgo.ErrDecompressTooLarge) {
	a.unread = Range{From: max(a.position(), e.Offset), To: e.NextOffset}
	a.onward = &kgo.EpochOffset{Epoch: e.Epoch, Offset: e.NextOffset}
	a.failing = nil
}

// goesOn returns, once, where the client is to fetch on behind a batch that was left out,
// when its records have been taken; nil = nowhere.
func (a *assignment) goesOn() (at *kgo.EpochOffset) {
	if a.onward == nil || a.hasUnread() || a.ended || a.stopped != nil {
		return nil
	}
	at, a.onward = a.onward, nil
	return at
}

// hasUnread reports whether there are records that cannot be unpacked and have
// not been taken.
func (a *assignment) hasUnread() bool { return a.unread.From < a.unread.To }

// fetchFailed notes a fetch error: a reason to stop, or one that may pass. withData
// is as in isSpoilt; records is how many records came with the error.
//
// It reports whether to fetch again from the position on. Data may have been spoilt
// in transit. The client reports spoilt data together with the sound records before
// it, or reads on past it. So an error counts only if no sound records came with
// it, and stops the partition if it lasts.
func (a *assignment) fetchFailed(err error, withData bool, records int, now time.Time) (again bool) {
	spoilt := isSpoilt(err, withData)
	if a.stopped != nil {
		return false
	}
	if spoilt && records > 0 {
		return true
	}
	a.topic.metrics.fetchErrors.Inc()
	if a.failing == nil || now.Sub(a.failedAt) > silence {
		a.failingSince = now
	}
	switch {
	case !spoilt:
		a.spoiltSince = time.Time{}
	case a.spoiltSince.IsZero() || now.Sub(a.failedAt) > silence:
		a.spoiltSince = now
	}
	if isGone(err) || spoilt && now.Sub(a.spoiltSince) >= a.options.refetching {
		a.stopped = &PartitionError{Partition: a.partition, Offset: a.position(), Err: err}
		return false
	}
	a.failing, a.failedAt = err, now
	return spoilt
}

const (
	// refetch is how long a partition is paused after an error: on its own, the
	// client would fetch again at once for as long as the error lasts.
	refetch = 250 * time.Millisecond
	// passing is how long an error that Kafka calls retriable, such as a moving
	// leader, may last before the partition is reported. It is also the default of
	// SourceOptions.refetching.
	passing = 5 * time.Second
)

// resting reports whether the partition is paused after an error, and until when.
func (a *assignment) resting(now time.Time) (until time.Time, rests bool) {
	if until = a.crowdedAt.Add(5 * recheck); now.Before(until) {
		return until, true // other partitions use up the room to unpack it
	}
	until = a.failedAt.Add(refetch)
	return until, a.failing != nil && now.Before(until)
}

// failed reports whether fetching failed recently, so that the partition probably
// cannot be read now.
func (a *assignment) failed(now time.Time) bool {
	return a.failing != nil && now.Sub(a.failedAt) <= silence
}

// heal forgets an old error if there is nothing to read: then no record could show
// that the error has passed.
func (a *assignment) heal(now time.Time) {
	if a.failing != nil && !a.failed(now) && a.behind() == 0 {
		a.failing = nil
	}
}

// trouble returns why the partition is stopped or cannot be read for now; nil = it
// is fine.
func (a *assignment) trouble() error {
	switch {
	case a.stopped != nil:
		return a.stopped
	case a.failing != nil && (!kerr.IsRetriable(a.failing) || a.failedAt.Sub(a.failingSince) >= passing):
		return fmt.Errorf("reading partition %s/%d, tried again: %w", a.partition.Topic, a.partition.ID, a.failing)
	}
	return nil
}

// hurry makes held records due no later than a record behind them, usually one of
// another route. If their own route is still stopped they are held again,
// otherwise they are sent.
func (a *assignment) hurry(due time.Time) {
	for i := len(a.waiting) - 1; i >= 0 && a.waiting[i].due.After(due); i-- {
		a.waiting[i].due = due
	}
}

// ready reports whether a batch can be cut now and, if not, when to ask again;
// zero = only when something has changed.
func (a *assignment) ready(now time.Time) (bool, time.Time) {
	switch {
	case a.ended, a.busy, len(a.waiting) == 0 && len(a.rest) == 0:
		return false, time.Time{}
	case a.waitsForFormer(now):
		return false, now.Add(recheck)
	}
	if len(a.rest) > 0 {
		return !now.Before(a.restAt), a.restAt
	}
	due := a.waiting[0].due
	if due.After(now) {
		return false, due
	}
	if a.settled > 0 || !a.topic.delayed() && (len(a.waiting) >= a.limits.batch || a.waitingBytes >= a.limits.batchBytes) {
		return true, time.Time{}
	}
	until := due.Add(a.options.Linger)
	return !now.Before(until), until
}

// settle has what is waiting wait for no more records, if that is little. A delayed topic has
// its linger for those that become due after one another, which no poll brings.
func (a *assignment) settle() {
	if !a.topic.delayed() && len(a.waiting) < max(2, a.options.BatchRecords/few) {
		a.settled = len(a.waiting)
	}
}

// head returns the records of the next batch without taking them: only records that
// are due, and at most BatchRecords or BatchBytes. A single record may exceed
// BatchBytes.
func (a *assignment) head(now time.Time) ([]polledRecord, int) {
	bytes := 0
	for i := range a.waiting {
		h := &a.waiting[i]
		if i == a.options.BatchRecords || i > 0 && bytes+h.bytes() > a.options.BatchBytes {
			return a.waiting[:i], bytes
		}
		if h.due.After(now) {
			return a.waiting[:i], bytes
		}
		bytes += h.bytes()
	}
	return a.waiting, bytes
}

// drop removes the first n waiting records, which a batch has now.
func (a *assignment) drop(n, bytes int) {
	clear(a.waiting[:n])
	a.waiting = a.waiting[n:]
	a.waitingBytes -= bytes
	a.settled = max(0, a.settled-n)
	if len(a.waiting) == 0 {
		a.waiting = nil
	}
}

// out notes a batch that was handed out.
func (a *assignment) out(records, bytes int) {
	a.admitted += uint64(records)
	a.spans = append(a.spans, span{upTo: a.admitted, bytes: bytes})
	a.spanBytes += bytes
}

// open returns how many records lie between the committed offset and the newest
// polled one, and how many bytes they hold. While a batch is cut, its records may
// count twice: the tracker has them already, and waiting has them still.
func (a *assignment) open() (records, bytes int) {
	n := a.tracker.Uncommitted()
	done := a.admitted - min(a.admitted, uint64(n))
	for len(a.spans) > 0 && a.spans[0].upTo <= done {
		a.spanBytes -= a.spans[0].bytes
		a.spans = a.spans[1:]
	}
	for i := range a.rest {
		it := &a.rest[i]
		bytes += keptBytes(it.Key, it.Value, it.Trace, it.Devices)
	}
	return n + len(a.rest) + len(a.waiting), bytes + a.spanBytes + a.waitingBytes
}

// full reports whether to poll no more for this partition. It is full when there is
// room for less than one batch, and stays full until half of the window is free, and
// a batch has room; but not if it only seemed full while a batch was cut.
func (a *assignment) full() bool {
	records, bytes := a.open()
	l := a.limits
	if a.paused {
		a.paused = records > min(l.window/2, l.window-l.batch) || bytes > min(l.windowBytes/2, l.windowBytes-l.batchBytes)
		return a.paused
	}
	full := records > l.window-l.batch || bytes > l.windowBytes-l.batchBytes
	a.paused = full && !a.busy
	return full
}

// early reports whether the partition's next record is not due yet, and when it is.
func (a *assignment) early(now time.Time) (time.Time, bool) {
	if !a.topic.delayed() || len(a.waiting) == 0 {
		return time.Time{}, false
	}
	due := a.waiting[0].due
	return due, due.After(now)
}

// isFresh reports whether nothing of the partition has been read yet, by us or by
// an earlier owner.
func (a *assignment) isFresh() bool { return a.committed < 0 && a.next < 0 }

// position returns the offset at which reading goes on. Where nothing is known
// reading begins at 0: see placeRest.
func (a *assignment) position() int64 {
	if a.reread > 0 && a.next < a.reread { // what is read again lies below the committed offset
		return max(a.begun, a.next)
	}
	return max(a.next, a.committed, a.from, 0)
}

// lag returns how many records are not committed yet; -1 = not known.
func (a *assignment) lag() int64 {
	at := max(a.committed, a.from, a.empty)
	if a.high < 0 || at < 0 {
		return -1
	}
	return max(0, a.high-at)
}

// showLag sets the lag's gauge, if the lag is known.
func (a *assignment) showLag() {
	if lag := a.lag(); lag >= 0 {
		a.topic.metrics.setLag(a.partition.ID, lag)
	}
}

// end makes the assignment take and hand out nothing more. The caller holds cutting
// and the Source's lock.
func (a *assignment) end() {
	a.ended = true
	a.waiting, a.waitingBytes, a.settled, a.rest, a.unread = nil, 0, 0, nil, Range{}
}
