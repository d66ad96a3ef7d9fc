package records

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"
)

// kind is one thing that may be special about a record.
type kind struct {
	name   string
	weight int // how often, beside the others
	bomb   bool
	wire   bool // it takes a batch made by hand
	change func(*draft)
}

// IDReused is why a record is dead-lettered that has the id of another user's: which of
// the two that is, their order in one partition says.
const IDReused = "id_reused"

// The limits of docs/messages.md, in bytes.
const (
	maxValue    = 64 << 10
	maxEnvelope = 64 << 10 // key and headers together
	maxBatch    = 64 << 20 // unpacked
	recordTakes = 168      // that each record adds to that
)

// kinds are all there are: what Kafka lets through, whoever wrote it.
var kinds = concat(plain, ids, times, envelopes, expiries, packed, texts, hostile)

func concat(lists ...[]kind) (all []kind) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

var plain = []kind{
	{name: "a plain one", weight: 20, change: func(*draft) {}},
	{name: "a copy", weight: 10, change: func(d *draft) {
		if o, ok := d.again(); ok && !o.taken {
			d.Record = o.record
			d.Want.Copy, d.Kind = true, "a copy"
		}
	}},
}

// Ids that name no time, or another one; and one that somebody else has.
var ids = []kind{
	{name: "a UUIDv4", weight: 6, change: func(d *draft) { d.id(d.g.uuid(d.now, 4)) }},
	{name: "a plain word as id", weight: 6, change: func(d *draft) { d.id("order/" + d.word(12)) }},
	{name: "an id of one letter and blanks", weight: 2, change: func(d *draft) { d.id("x " + d.word(12) + " ") }},
	{name: "an id of 64 characters", weight: 3, change: func(d *draft) { d.id(d.word(64)) }},
	{name: "an id that is SQL and JSON", weight: 3, change: func(d *draft) { d.id(`';--"}\` + d.word(16)) }},
	{name: "an id that looks like a place", weight: 2, change: func(d *draft) { d.id("kafka:" + d.word(24)) }},
	{name: "a UUIDv7 in capitals", weight: 3, change: func(d *draft) { d.id(strings.ToUpper(d.Want.ID)) }},
	{name: "a UUIDv7 of next year", weight: 3, change: func(d *draft) { d.id(d.g.uuid(d.now.AddDate(1, 0, 0), 7)) }},
	{name: "a UUIDv7 of 1970", weight: 3, change: func(d *draft) { d.id(d.g.uuid(time.UnixMilli(1), 7)) }},
	{name: "a UUIDv7 of the greatest time", weight: 2, change: func(d *draft) { d.id(d.g.uuid(time.UnixMilli(1<<48-1), 7)) }},
	{name: "an id that another user has", weight: 5, change: func(d *draft) {
		o, ok := d.again()
		if !ok {
			return
		}
		// Under the same key: which of two partitions is ahead nobody knows.
		other := (o.user + 1 + d.g.r.IntN(len(d.g.options.Users)-1)) % len(d.g.options.Users)
		d.Key, d.Codec, o.taken = o.record.Key, Unpacked, true
		d.fields["id"], d.fields["user_id"] = o.record.Want.ID, d.g.options.Users[other].ID
		d.nameless(IDReused, "*")
		d.Want.Decoded, d.Want.User = true, -1
	}},
}

// Timestamps. The age of a notification runs from them.
var times = []kind{
	{name: "no timestamp", weight: 3, change: func(d *draft) { d.at(-1, Now) }},
	{name: "a timestamp before 1970", weight: 2, change: func(d *draft) { d.at(-86_400_000, Epoch); d.old() }},
	{name: "a timestamp of 1970", weight: 2, change: func(d *draft) { d.at(0, AsWritten); d.old() }},
	{name: "older than the lane lets it get", weight: 2, change: func(d *draft) {
		d.at(d.now.Add(-d.g.options.GreatestAge-time.Minute).UnixMilli(), AsWritten)
		d.old()
	}},
	{name: "an hour old", weight: 3, change: func(d *draft) { d.at(d.now.Add(-d.g.options.GreatestAge/24).UnixMilli(), AsWritten) }},
	{name: "an hour ahead", weight: 3, change: func(d *draft) { d.at(d.now.Add(time.Hour).UnixMilli(), Ahead) }},
	{name: "of the year 2261", weight: 2, change: func(d *draft) { d.at(9_183_000_000_000, Ahead) }},
	{name: "a timestamp in nanoseconds", weight: 2, wire: true, change: func(d *draft) { d.at(d.now.UnixNano(), Ahead) }},
	{name: "a timestamp in microseconds", weight: 2, wire: true, change: func(d *draft) { d.at(d.now.UnixMicro(), Ahead) }},
	// In a client that makes nanoseconds of it, this one is exactly -1 ms: none.
	{name: "the greatest timestamp", weight: 1, wire: true, change: func(d *draft) { d.at(math.MaxInt64, Now) }},
}

// Keys and headers: nothing in them decides anything, but for their size.
var envelopes = []kind{
	{name: "no key", weight: 3, change: func(d *draft) { d.Key = nil }},
	{name: "an empty key", weight: 3, change: func(d *draft) { d.Key = []byte{} }},
	{name: "a key of any bytes", weight: 2, change: func(d *draft) { d.Key = []byte("\x00\xff\r\n" + d.word(8)) }},
	{name: "the greatest key", weight: 1, change: func(d *draft) { d.Key = d.filled(maxEnvelope) }},
	{name: "a key a byte over that", weight: 1, change: func(d *draft) { d.Key = d.filled(maxEnvelope + 1); d.nameless("too_large", "headers") }},
	{name: "a key of 1 MB", weight: 1, change: func(d *draft) { d.Key = d.filled(1_000_000); d.nameless("too_large", "headers") }},
	{name: "2,000 headers", weight: 2, change: func(d *draft) {
		for i := range 2000 {
			d.header(fmt.Sprintf("h%d", i), "v")
		}
	}},
	{name: "one header 300 times", weight: 2, change: func(d *draft) {
		for range 300 {
			d.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		}
	}},
	{name: "a header without name or value", weight: 2, change: func(d *draft) { d.Headers = append(d.Headers, Header{}) }},
	{name: "a header of any bytes", weight: 2, change: func(d *draft) { d.header("\x00\xff\r\n", "\xff\x00"+d.word(8)) }},
	{name: "a header of 1 MB", weight: 1, change: func(d *draft) { d.header("big", string(d.filled(1_000_000))); d.nameless("too_large", "headers") }},
	{name: "the greatest headers", weight: 1, change: func(d *draft) { d.header("h", string(d.filled(maxEnvelope-1-len(d.Key)))) }},
	{name: "headers a byte over that", weight: 1, change: func(d *draft) {
		d.header("h", string(d.filled(maxEnvelope-len(d.Key))))
		d.nameless("too_large", "headers")
	}},
	{name: "our own headers", weight: 6, change: (*draft).forge},
	{name: "our own headers, each twice", weight: 3, change: func(d *draft) { d.forge(); d.forge() }},
}

// forge writes what only the fleet writes: on a lane's own topic it means
// nothing, whatever it says.
func (d *draft) forge() {
	for _, h := range [][]string{
		{"pf-v", "1", "2", "", "9999999999999999999"}, {"pf-attempt", "3", "-1", "32767", "x"}, {"pf-hops", "0", "32768"},
		{"pf-redrive", "1", "-9"}, {"pf-not-before", "99999999999999", "-1"}, {"pf-first-seen", "0", "99999999999999", "\x00"},
		{"pf-state", "RETRYING", "DELIVERED"}, {"pf-devices", "aaaaaaaaaaaaaaaa", "", ",,,"}, {"pf-reason", "bad_json"}, {"pf-allowed", "1", "0"}, {"pf-paid", "1", ""}, {"pf-admitted", "1", "0"},
		{"pf-origin", "push.main/0/0", "../../x"}, {"pf-size", "-1"}, {"pf-provider", "apns"}, {"pf-", "x"}, {"pf-unknown", "x"},
	} {
		if d.g.r.IntN(3) > 0 {
			d.header(h[0], h[1+d.g.r.IntN(len(h)-1)])
		}
	}
}

var expiries = []kind{
	{name: "an expiry in an hour", weight: 3, change: func(d *draft) { d.expires(d.now.Add(time.Hour), time.RFC3339) }},
	{name: "an expiry in an hour, of another zone", weight: 2, change: func(d *draft) {
		d.expires(d.now.Add(time.Hour).In(time.FixedZone("", -5*3600)), time.RFC3339Nano)
	}},
	{name: "the last expiry there is", weight: 2, change: func(d *draft) { d.fields["expires_at"] = "9999-12-31T23:59:59Z" }},
	{name: "past its expiry", weight: 2, change: func(d *draft) { d.expires(d.now.Add(-time.Minute), time.RFC3339); d.past() }},
	{name: "a time that was left unset", weight: 3, change: func(d *draft) { d.fields["expires_at"] = "0001-01-01T00:00:00Z"; d.past() }},
	{name: "an expiry of the year 0", weight: 1, change: func(d *draft) { d.fields["expires_at"] = "0000-01-01T00:00:00Z"; d.past() }},
	{name: "an empty expiry", weight: 1, change: func(d *draft) { d.fields["expires_at"] = "" }},
	{name: "no expiry, in so many words", weight: 1, change: func(d *draft) { d.fields["expires_at"] = nil }},
	{name: "an expiry without a zone", weight: 1, change: func(d *draft) { d.fields["expires_at"] = "2026-11-21T10:00:00"; d.dead("bad_value", "expires_at") }},
	{name: "an expiry that is a number", weight: 1, change: func(d *draft) { d.fields["expires_at"] = 1_700_000_000; d.dead("wrong_type", "expires_at") }},
}

// Sizes of values and of batches, before and after packing.
var packed = []kind{
	{name: "the greatest value", weight: 2, change: func(d *draft) { d.padded(maxValue) }},
	{name: "a value a byte over that", weight: 2, change: func(d *draft) { d.padded(maxValue + 1); d.nameless("too_large", "") }},
	{name: "a value of 1 MB, packed", weight: 1, change: func(d *draft) {
		d.padded(1_000_000)
		d.Codec = 1 + Codec(d.g.r.IntN(int(Codecs)-1))
		d.nameless("too_large", "")
	}},
	{name: "a packed batch that just fits", weight: 1, bomb: true, change: func(d *draft) {
		d.bomb(maxBatch - recordTakes - 4096)
		d.nameless("too_large", "")
	}},
	{name: "a bomb", weight: 1, bomb: true, change: func(d *draft) {
		d.bomb(maxBatch + 1<<20)
		d.nameless("too_large", "batch")
	}},
}

// bomb makes a value that is packed to almost nothing.
func (d *draft) bomb(n int) {
	d.Value = bytes.Repeat([]byte(" "), n)
	d.Codec, d.Alone, d.Key = Zstd, true, nil
	if d.g.r.IntN(2) == 0 {
		d.Codec = Gzip
	}
}

func (d *draft) id(id string) {
	d.fields["id"], d.Want.ID = id, id
}

// word is n random letters and digits.
func (d *draft) word(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[d.g.r.IntN(len(letters))]
	}
	return string(b)
}

// again is a record that came before.
func (d *draft) again() (*original, bool) {
	if len(d.g.past) == 0 {
		return nil, false
	}
	return &d.g.past[d.g.r.IntN(len(d.g.past))], true
}

func (d *draft) at(millis int64, age Age) {
	d.Millis, d.Want.Age, d.Alone = millis, age, true
}

func (d *draft) old() {
	d.Want.Outcome, d.Want.Reason = Expired, "past_greatest_age"
}

func (d *draft) past() {
	d.Want.Outcome, d.Want.Reason = Expired, "past_expires_at"
}

func (d *draft) expires(at time.Time, layout string) {
	at = at.Truncate(time.Second)
	d.fields["expires_at"], d.Want.Expires = at.Format(layout), at
}

func (d *draft) header(key, value string) {
	d.Headers = append(d.Headers, Header{key, []byte(value)})
}

// filled is n bytes that cannot be packed to nothing.
func (d *draft) filled(n int) []byte {
	part := []byte(d.word(64))
	return bytes.Repeat(part, n/len(part)+1)[:n]
}

// padded makes the value longer by blanks, which JSON allows.
func (d *draft) padded(n int) {
	v := d.json()
	d.Value = append(v, bytes.Repeat([]byte(" "), n-len(v))...)
}
