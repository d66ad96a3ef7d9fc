// Package records makes up records over the whole input space of Kafka:
// timestamps, keys, headers, sizes, packing, ids and JSON that producers with
// other habits than ours write, and some that only an attacker does.
//
// Of each record it says what the contract demands (docs/messages.md,
// docs/delivery.md), from its knowledge of how it made the record. It imports
// nothing of ours, so what it says is a second opinion and not the worker's own.
//
// kinds.go lists what there is; START HERE: Generator.Next.
package records

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// Header is one of a record's.
type Header struct {
	Key   string
	Value []byte
}

// Codec is how the batch of a record is packed.
type Codec uint8

// The codecs of Kafka.
const (
	Unpacked Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
	Codecs // how many there are
)

// Record is one made-up record.
type Record struct {
	Kind       string // what is special about it, in words
	Key, Value []byte // nil is none, which is not the same as empty
	Headers    []Header
	// Millis is its timestamp, as the batch says it: milliseconds since 1970, or
	// anything else that fits.
	Millis int64
	Codec  Codec
	// Alone is set where its batch must hold nothing else: for its timestamp,
	// which would make that of others overflow, or because all of a batch shares
	// what becomes of it.
	Alone bool
	Want  Want
}

// Outcome is what must become of a record.
type Outcome string

// The outcomes, as the status store calls them.
const (
	Delivered    Outcome = "DELIVERED"
	Failed       Outcome = "FAILED"
	Expired      Outcome = "EXPIRED"
	DeadLettered Outcome = "DEAD_LETTERED"
)

// Want is what the contract demands of a record.
type Want struct {
	// Copy is set for a further record of an id: it has no outcome of its own.
	Copy    bool
	Outcome Outcome
	// Reason that its rows must have; empty = any. Detail stands behind it; "*"
	// is any.
	Reason, Detail string
	// ID is what its status rows stand under; empty = that of its place (PlaceID).
	ID string
	// Textless says that it has nothing to show: to Android it is a data message.
	Textless bool
	// User is the index of the user who gets it; -1 = none.
	User int
	// Decoded says that its value is a usable message: what is wrong shows later,
	// or nothing is.
	Decoded bool
	// Expires is the time in the message after which it may not be sent; zero =
	// none.
	Expires time.Time
	// Age says how its time counts, of which its age runs.
	Age Age
}

// Age is how a record's timestamp counts.
type Age uint8

// The ways.
const (
	AsWritten Age = iota // it is what it says
	Now                  // none was given: when a worker first reads it
	Epoch                // before 1970: as 1970
	Ahead                // more than a minute ahead: as a minute ahead
)

// User is somebody who can get notifications.
type User struct{ ID string }

// Options are what a Generator makes records of.
type Options struct {
	// App is one that the fleet is configured for.
	App string
	// Users have at least one device each, and every token of theirs lives. At
	// least two.
	Users []User
	// GreatestAge is the lane's.
	GreatestAge time.Duration
	// Bombs also makes batches that unpack to more than a worker takes: 65 MiB
	// of memory each.
	Bombs bool
	// Wire also makes timestamps that a client with nanoseconds in 64 bits cannot
	// write (after 2262), which takes a batch made by hand.
	Wire bool
}

// Generator makes up records, one after another. It is for one goroutine.
type Generator struct {
	options Options
	r       *rand.Rand
	n       int
	past    []original // that may come again
	total   int        // of the weights of the kinds that may be drawn
}

// original is a record whose id may come again.
type original struct {
	record Record
	user   int
	// taken is set once another user's record has its id. A copy after that may
	// meet that record where it is still open, and which of the two has the id by
	// right no worker knows then: it may end as a copy, or as one that has taken it.
	taken bool
}

// New makes a Generator that draws all it does from source: the same source,
// options and times give the same records.
func New(o Options, source rand.Source) (*Generator, error) {
	if o.App == "" || len(o.Users) < 2 || o.GreatestAge <= 0 {
		return nil, fmt.Errorf("records: an app, two users and a greatest age are needed, not %q, %d and %v", o.App, len(o.Users), o.GreatestAge)
	}
	g := &Generator{options: o, r: rand.New(source)}
	for i := range kinds {
		if g.may(&kinds[i]) {
			g.total += kinds[i].weight
		}
	}
	return g, nil
}

func (g *Generator) may(k *kind) bool {
	return (g.options.Bombs || !k.bomb) && (g.options.Wire || !k.wire)
}

// Next makes up the next record, written at now.
func (g *Generator) Next(now time.Time) Record {
	g.n++
	pick := g.r.IntN(g.total)
	for i := range kinds {
		k := &kinds[i]
		if !g.may(k) {
			continue
		}
		if pick -= k.weight; pick < 0 {
			return g.make(k, now)
		}
	}
	panic("records: the weights do not add up")
}

// make makes up a record of one kind: a good one, which the kind then changes.
func (g *Generator) make(k *kind, now time.Time) Record {
	now = now.Truncate(time.Millisecond)
	user := g.r.IntN(len(g.options.Users))
	d := &draft{g: g, now: now, user: user}
	d.Kind, d.Millis = k.name, now.UnixMilli()
	d.Want = Want{Outcome: Delivered, Reason: "", Detail: "*", ID: g.uuid(now, 7), User: user, Decoded: true}
	d.Key = []byte(g.options.Users[user].ID)
	if g.r.IntN(4) == 0 {
		d.Codec = Codec(g.r.IntN(int(Codecs)))
	}
	d.fields = map[string]any{
		"id": d.Want.ID, "app": g.options.App, "user_id": g.options.Users[user].ID,
		// A type of its own: no cap per type counts it.
		"type":  "generated-" + strconv.Itoa(g.n),
		"title": "Order " + strconv.Itoa(g.n) + " is on its way", "body": "It left the warehouse in Rotterdam this morning.",
	}
	k.change(d)
	if d.Value == nil && !d.empty {
		d.Value = d.json()
	}
	if d.keeps() {
		g.remember(d)
	}
	return d.Record
}

// draft is a record in the making.
type draft struct {
	Record
	g      *Generator
	now    time.Time
	user   int
	fields map[string]any // of its value, unless that is made otherwise
	empty  bool           // it has no value, and is to have none
	unkept bool           // its id must not come again
}

// json is the value that the fields make. Maps are marshalled in the order of
// their keys, so it is always the same.
func (d *draft) json() []byte {
	b, err := json.Marshal(d.fields)
	if err != nil {
		panic(fmt.Sprintf("records: %s: %v", d.Kind, err)) // of this package's own making
	}
	return b
}

// keeps reports whether the id may come again. Records of an order that nobody
// keeps are left out: which of two comes first would decide what becomes of them.
func (d *draft) keeps() bool {
	return d.Want.Outcome == Delivered && !d.Want.Copy && !d.unkept && d.Codec == Unpacked && !d.Alone && len(d.Key) > 0 && len(d.Key) <= 128
}

// kept is how many records may come again: the newest.
const kept = 500

func (g *Generator) remember(d *draft) {
	o := original{record: d.Record, user: d.user}
	if len(g.past) < kept {
		g.past = append(g.past, o)
		return
	}
	g.past[g.r.IntN(kept)] = o
}

// dead makes it a record that cannot be used, for a reason and with what stands
// behind it ("*" is any). What has no id of its own stands under its place.
func (d *draft) dead(reason, detail string) {
	d.Want.Outcome, d.Want.Reason, d.Want.Detail, d.Want.Decoded = DeadLettered, reason, detail, false
}

// nameless is dead without a usable id.
func (d *draft) nameless(reason, detail string) {
	d.dead(reason, detail)
	d.Want.ID = ""
}

// PlaceID is what the rows of a record without a usable id stand under: a hash
// of its place.
func PlaceID(topic string, partition int32, offset int64) string {
	h := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%d", topic, partition, offset))
	return "kafka:" + base64.RawURLEncoding.EncodeToString(h[:18])
}

// uuid is one of a version: 7 has the time in it, 4 has none.
func (g *Generator) uuid(at time.Time, version byte) string {
	var b [16]byte
	for i := range b {
		b[i] = byte(g.r.Uint32())
	}
	if version == 7 {
		ms := uint64(at.UnixMilli())
		for i := range 6 {
			b[i] = byte(ms >> (40 - 8*i))
		}
	}
	b[6], b[8] = version<<4|b[6]&15, 2<<6|b[8]&63
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
