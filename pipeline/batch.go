package pipeline

import (
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Item is a Message on its way: its Kafka place, its attempt, its verdict and
// its deliveries. It is decided in place and never leaves its Batch.
type Item struct {
	push.Message

	// Where it came from.
	Partition push.Partition
	Offset    int64
	Timestamp time.Time // of this record
	FirstSeen time.Time // of the first record of this notification (pf-first-seen): age runs from here
	Key       []byte
	Value     []byte
	Trace     []RecordHeader // headers of others (traceparent), passed through
	// Size is that of key, value and headers as they came, in bytes. Of a record
	// in a batch that is too large to unpack it is the greatest size of a batch.
	Size int

	// What the headers of a retry, hold or redrive record say.
	Attempt int      // provider attempts before this one
	Hops    int      // hand-overs that were no attempt
	Redrive int      // times redriven from the DLQ
	Devices []string // device hashes this record is for; empty = all
	// HandedAs is the state of the row by which the record before handed over to
	// this one: RETRYING or HELD; 0 = not known.
	HandedAs push.State
	// NotBefore is set when it is due so much later than its topic's delay that
	// it must not hold up those behind it: it is produced again.
	NotBefore time.Time

	// Reread marks a record below the committed offset, in a lane whose intents
	// are committed before they are sent: it is only looked at, never sent.
	Reread bool

	// Derived marks a collapse key that was made of the id: no other
	// notification has it.
	Derived bool

	// Decided on the way.
	Verdict push.Verdict
	Reason  push.Reason
	Detail  string // the field or rule at fault; never message text
	Confirm bool   // read the status store whatever the Bloom filter says
	// Confirmed is when its rows were read, if they were: what it has to do is
	// as of then. A send that comes much later asks again.
	Confirmed time.Time
	History   *push.History
	User      *push.User
	// Read is when User was; zero = it was not. A send that comes much later
	// asks again.
	Read    time.Time
	Expires time.Time // the earlier of expires_at and first seen + the lane's greatest age

	Deliveries []Delivery

	batch      *Batch
	seq        uint64 // in its tracker
	unanswered int32  // deliveries without a durable end; atomic
	abandoned  uint32 // 1 = one of them will have none here; atomic
	intended   bool   // its offset goes ahead of its outcome (at_most_once); written under the tracker's lock
	committed  bool   // and is committed: from here nothing stops the send
}

// RecordHeader is a Kafka record header.
type RecordHeader struct {
	Key   string
	Value []byte
}

// Step numbers the records that own a device one after another: the step of
// every status row this record writes.
func (it *Item) Step() int16 { return int16(it.Attempt + it.Hops) }

// RowID is the id its status rows stand under.
func (it *Item) RowID() string {
	if it.ID == "" || it.Reason == push.IDReused {
		return push.PlaceID(it.Partition.Topic, it.Partition.ID, it.Offset)
	}
	return it.ID
}

// Owner is the user as Redis and the status table key it: the user id, or for
// a bare device its device hash.
func (it *Item) Owner() string {
	if it.UserID != "" {
		return it.UserID
	}
	if it.Message.Device.Token == "" {
		return ""
	}
	return push.DeviceHash(it.Message.Device.Platform, it.Message.Device.Token)
}

// Decide gives an undecided item its verdict; a later verdict does not change
// an earlier one.
func (it *Item) Decide(v push.Verdict, r push.Reason, detail string) {
	if it.Verdict == push.Undecided {
		it.Verdict, it.Reason, it.Detail = v, r, detail
	}
}

// Batch is a run of records of one partition, owned by one goroutine at a
// time until it is sent. Its Items are of fixed length: an item gets a
// verdict, it is never removed.
type Batch struct {
	Partition push.Partition
	Items     []Item
	Tracker   *Tracker
	// Retry is set for batches of retry and hold topics: all their items are
	// confirmed, and the Bloom filter is not asked.
	Retry bool
	// Poisoned is what was caught while it was decoded; nil = nothing.
	Poisoned *Poisoned

	// over gets a value for each item of a batch of intents that has its end. It
	// has room for all, and is never closed; nil in other modes.
	over chan struct{}
}

// Undecided returns the items that still go on, appended to buf[:0].
func (b *Batch) Undecided(buf []*Item) []*Item {
	buf = buf[:0]
	for i := range b.Items {
		if b.Items[i].Verdict == push.Undecided {
			buf = append(buf, &b.Items[i])
		}
	}
	return buf
}
