package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Item is a Message on its way: its place in Kafka, its attempt, its verdict and
// its deliveries. It gets its verdict in place and never leaves its Batch.
type Item struct {
	// What all stages and steps look at comes first: a batch has 10,000 items, and they are
	// walked for each of them.
	Verdict push.Verdict
	// Confirm: read the status store whatever the Bloom filter says.
	Confirm bool
	// Reread marks a record below the committed offset, in a lane that commits its
	// intents before it sends: the record is only examined, never sent.
	Reread bool
	// Derived marks a collapse key that was derived from the id: no other
	// notification has it.
	Derived bool
	// Allowed: the limits have allowed it, here or in the record before. What they
	// allowed once is neither charged again nor refused, however late it is sent.
	Allowed bool
	// Paid: its sender's limits have given it a token that no attempt has used so far.
	Paid bool
	// HandedAs is the state of the row with which the previous record handed over to
	// this one: RETRYING or HELD; 0 = not known.
	HandedAs  push.State
	intended  bool   // its offset is committed before it is sent (at_most_once); written under the tracker's lock
	committed bool   // its offset has been committed: nothing stops the send any more
	counted   uint16 // where its tracker counts its expiry; 0 = nowhere
	unended   int32  // deliveries without a durable end; atomic
	marks     uint32 // markAbandoned, markBegun; atomic
	// Place is where Latest counts it while it is in flight; 0 = nowhere. Only Latest uses it.
	Place      uint32
	batch      *Batch
	User       *push.User
	Deliveries []Delivery

	// What follows, with the beginning of the Message, is what the steps around a send look
	// at, and all that most of them do.
	Offset    int64        // where it came from, in its Partition
	seq       uint64       // in its tracker
	FirstSeen push.Instant // of the first record of this notification (pf-first-seen): age runs from here
	Expires   push.Instant // the earlier of expires_at and first seen + the lane's greatest age
	timeline  *Timeline    // nil = nobody follows it
	Timestamp push.Instant // of this record
	Reason    push.Reason  // of its verdict
	Partition push.Partition
	Attempt   int     // provider attempts before this one; of a retry, hold or redrive record
	Hops      int     // hand-overs that were not attempts; likewise
	Came      []*Kind // what it came to, set when it ends; its tracker takes it

	push.Message

	rowsAt int64 // of its rows as a whole, in Unix ns; 0 = it has none
	Key    []byte
	Value  []byte
	// Size is the size of key, value and headers as they came, in bytes. For a record
	// of a batch that is too large to unpack, it is the greatest size of a batch.
	Size  int
	Trace []RecordHeader // headers that are not ours (traceparent), passed on

	// From the headers of a retry, hold or redrive record.
	Redrive int      // times redriven from the DLQ
	Devices []string // hashes of the devices that this record is for; empty = all
	// NotBefore is set if the record is due so much later than its topic's delay
	// that it must not block those behind it: it is produced again. It keeps the zone of
	// quiet hours, which pushctl shows.
	NotBefore time.Time

	// Read is when User was read; zero = it was not. A send that comes much later
	// reads it again.
	Read Uptime
	// Confirmed is when its rows were read; zero = they were not. A send that comes
	// much later reads them again.
	Confirmed Uptime
	History   *push.History
	Detail    string // the field or rule at fault; never message text

	// Ended are the rows that a former owner of the partition has written for this very
	// record: they count as if they were written here.
	Ended []push.Row
}

// What an item's marks say.
const (
	markAbandoned = 1 << iota // a delivery will not end here
	markBegun                 // it does not wait to be sent: dispatched, decided or at its end
)

// RecordHeader is a Kafka record header.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Step numbers the records that own a device one after the other. It is the step of
// every status row that this record writes.
func (it *Item) Step() int16 { return int16(it.Attempt + it.Hops) }

// RowID is the id of its status rows.
func (it *Item) RowID() string {
	if it.ID == "" || it.Reason == push.IDReused {
		return push.PlaceID(it.Partition.Topic, it.Partition.ID, it.Offset)
	}
	return it.ID
}

// Owner is the key of the user in Redis and in the status table: the user id, or the
// device hash if the message names a device and no user.
func (it *Item) Owner() string {
	if it.UserID != "" {
		return it.UserID
	}
	if it.Message.Device.Token == "" {
		return ""
	}
	return push.DeviceHash(it.Message.Device.Platform, it.Message.Device.Token)
}

// Decide gives an undecided item its verdict. It does not change an earlier one.
func (it *Item) Decide(v push.Verdict, r push.Reason, detail string) {
	if it.Verdict == push.Undecided {
		it.Verdict, it.Reason, it.Detail = v, r, detail
		if it.batch != nil {
			it.batch.Tracker.begins(it)
		}
	}
}

// SetPriority gives the item another priority than its producer wrote. Stages may call it,
// before the item is sent.
func (it *Item) SetPriority(p push.Priority) {
	it.Priority = p
	if it.batch != nil {
		it.batch.Tracker.countAgain(it)
	}
}

// isAbandoned reports whether the item has a delivery without a durable end.
func (it *Item) isAbandoned() bool { return atomic.LoadUint32(&it.marks)&markAbandoned != 0 }

// leaving reports whether the item's partition is leaving.
func (it *Item) leaving() bool { return it.batch.Tracker.Draining() }

// claimed reports whether all devices of the item belong to another record.
func (it *Item) claimed() bool {
	for j := range it.Deliveries {
		if it.Deliveries[j].Result.Class != push.Claimed {
			return false
		}
	}
	return len(it.Deliveries) > 0
}

// Batch is a run of records of one partition. One goroutine at a time owns it until
// it is sent. Its Items have a fixed length: an item gets a verdict and is never
// removed.
type Batch struct {
	Partition push.Partition
	Items     []Item
	Tracker   *Tracker
	// Retry is set for batches of retry, deferral and hold topics: all their items are
	// confirmed, without asking the Bloom filter.
	Retry bool
	// Poisoned is what was caught when it was decoded; nil = nothing.
	Poisoned *Poisoned

	// followed are the timelines of its items that are traced.
	followed []*Timeline
	// over gets a value for each item that has ended, in at_most_once; nil in other
	// modes. Buffered for all items; never closed.
	over chan struct{}
}

// Undecided appends the items that have no verdict yet to buf[:0].
func (b *Batch) Undecided(buf []*Item) []*Item {
	buf = buf[:0]
	for i := range b.Items {
		if b.Items[i].Verdict == push.Undecided {
			buf = append(buf, &b.Items[i])
		}
	}
	return buf
}
