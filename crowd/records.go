package crowd

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// types are the message types that the crowd gets. A user gets one of them
// only, so that a cap per type counts all it gets.
var types = [...]string{"order_update", "chat_message", "price_drop"}

// Fate is what must become of a record.
type Fate uint8

// The fates. Several outcomes fit one fate where order decides.
const (
	Reaches      Fate = iota // DELIVERED to at least one device
	IsCopy                   // a second copy of an earlier id: ends as a duplicate
	IsSuppressed             // the user opted out
	MayBeLimited             // a greedy user's: delivered up to the cap, then limited
	DeadEnds                 // FAILED, or no device once the dead token was removed
	HasNoDevice              // SUPPRESSED(no_device)
	Expires                  // EXPIRED
	MayExpire                // EXPIRED if it has to wait for too long, else as Reaches
	DeadLetters              // the record cannot be used
	Fates                    // how many there are
)

var fateNames = [Fates]string{"reaches", "copy", "suppressed", "may be limited", "dead ends", "no device", "expires", "may expire", "dead-letters"}

func (f Fate) String() string { return fateNames[f] }

// Record is one made-up record of a lane's topic.
type Record struct {
	Key   []byte
	Value []byte
	ID    string // empty where the record has no usable one
	User  int
	Fate  Fate
}

// Records makes up the records of one run, one after another. Ids are UUIDv7
// of the time that Next is given. It is for one goroutine.
type Records struct {
	crowd *Crowd
	r     *rand.Rand
	n     int
	got   []uint16 // notifications with a type's budget that each user got
	past  []Record // the latest that may be copied
	buf   []byte
}

// Records starts a run.
func (c *Crowd) Records() *Records {
	return &Records{crowd: c, r: rand.New(rand.NewPCG(c.Seed, 1<<40)), got: make([]uint16, c.Users)}
}

// Next makes up the next record, produced at now.
func (g *Records) Next(now time.Time) Record {
	c, x := g.crowd, g.r.Float64()
	g.n++
	if g.wideTurn() {
		return g.made(Record{User: c.widest}, now, now.Add(time.Hour))
	}
	switch {
	case x < c.Duplicates && len(g.past) > 0:
		copied := g.past[g.r.IntN(len(g.past))]
		copied.Fate = IsCopy
		return copied
	case x < c.Duplicates+c.Broken:
		return g.broken()
	}
	rec := Record{User: g.pick()}
	kind, expires := c.kind(rec.User), now.Add(time.Hour)
	switch expired := x > 1-c.Expired; {
	case expired:
		rec.Fate, expires = Expires, now.Add(-time.Minute)
	case kind == Plain && x > 1-c.Expired-c.Soon:
		rec.Fate, expires = MayExpire, now.Add(c.Within)
	case kind == OptedOut:
		rec.Fate = IsSuppressed
	case kind == Greedy:
		rec.Fate = MayBeLimited
	case kind == DeadToken:
		rec.Fate = DeadEnds
	case kind == NoDevice:
		rec.Fate = HasNoDevice
	}
	return g.made(rec, now, expires)
}

// Mint is a new id, a UUIDv7 (RFC 9562) of a time, to the millisecond.
func Mint(at time.Time) string {
	id := uuid.New()
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	id[6] = 7<<4 | id[6]&0x0f
	return id.String()
}

// made completes a record that can be used.
func (g *Records) made(rec Record, now, expires time.Time) Record {
	rec.ID = Mint(now)
	rec.Key, rec.Value = []byte("u"+strconv.Itoa(rec.User)), g.value(rec, expires)
	g.remember(rec)
	return rec
}

// wideTurn reports whether the next record is for the widest user, and counts it.
func (g *Records) wideTurn() bool {
	c := g.crowd
	if c.widest < 0 || g.n%c.WideEvery != c.WideEvery/2 || c.Cap > 0 && int(g.got[c.widest]) >= c.Cap {
		return false
	}
	g.got[c.widest]++
	return true
}

// pick chooses whom it is for: a greedy user every twentieth time, else anyone
// who is not greedy, not the widest, and still under the cap.
func (g *Records) pick() int {
	c := g.crowd
	if len(c.greedy) > 0 && g.r.IntN(20) == 0 {
		return c.greedy[g.r.IntN(len(c.greedy))]
	}
	for range 100 {
		u := g.r.IntN(c.Users)
		if u != c.widest && c.kind(u) != Greedy && (c.Cap == 0 || int(g.got[u]) < c.Cap) {
			g.got[u]++
			return u
		}
	}
	panic(fmt.Sprintf("crowd: %d records are too many for %d users with a cap of %d", g.n, c.Users, c.Cap))
}

// remember keeps the last thousand for copies. Copies of what is expired would
// have two fates, and greedy users' copies two counts.
func (g *Records) remember(rec Record) {
	if rec.Fate == Expires || rec.Fate == MayExpire || rec.Fate == MayBeLimited {
		return
	}
	if len(g.past) < 1000 {
		g.past = append(g.past, rec)
		return
	}
	g.past[g.r.IntN(len(g.past))] = rec
}

// value is about 480 bytes, as a real one; bench/worker says so of its scenario.
func (g *Records) value(rec Record, expires time.Time) []byte {
	number := func(b []byte, before string, n int) []byte {
		return strconv.AppendInt(append(b, before...), int64(n), 10)
	}
	b := strconv.AppendQuote(append(g.buf[:0], `{"id":`...), rec.ID)
	b = strconv.AppendQuote(append(b, `,"app":`...), g.crowd.AppOf(rec.User))
	b = number(b, `,"user_id":"u`, rec.User)
	b = strconv.AppendQuote(append(b, `","type":`...), types[rec.User%len(types)])
	b = number(b, `,"priority":"high","sender_id":"orders","title":"Order `, g.n)
	b = append(b, ` is on its way","body":"It left the warehouse in Rotterdam this morning and will be with you between 14:00 and 16:00, or at your neighbours'.",`...)
	b = number(b, `"data":{"order":"`, g.n)
	b = number(b, `","screen":"orders/detail","campaign":"none"},"sound":"default","badge":`, 1+g.n%9)
	b = number(b, `,"thread_id":"orders","collapse_key":"order-`, g.n)
	b = expires.UTC().AppendFormat(append(b, `","expires_at":"`...), time.RFC3339)
	b = append(b, `"}`...)
	g.buf = b
	return append([]byte(nil), b...)
}

// broken makes a record that cannot be used, each in another way.
func (g *Records) broken() Record {
	rec := Record{User: g.pick(), Fate: DeadLetters, ID: uuid.Must(uuid.NewV7()).String()}
	rec.Key = []byte("u" + strconv.Itoa(rec.User))
	id, app := rec.ID, g.crowd.AppOf(rec.User)
	var v string
	switch g.n % 7 {
	case 0:
		v, rec.ID = `{"id":"`+id+`","app":`, ""
	case 1:
		v = fmt.Sprintf(`{"id":%q,"app":"no-such-app","user_id":"u%d"}`, id, rec.User)
	case 2:
		v, rec.ID = fmt.Sprintf(`{"app":%q,"user_id":"u%d"}`, app, rec.User), ""
	case 3:
		v, rec.ID = fmt.Sprintf(`{"id":%q,"app":%q,"user_id":"u%d","data":%s}`, id, app, rec.User, strings.Repeat(`{"a":`, 40)+"1"+strings.Repeat("}", 40)), ""
	case 4:
		v, rec.ID = fmt.Sprintf(`{"id":%q,"app":%q,"user_id":"u%d","title":5}`, id, app, rec.User), ""
	case 5:
		v, rec.ID = "{\"id\":\"\xff\xfe\"}", ""
	case 6:
		rec.ID = ""
		return rec // no value at all
	}
	rec.Value = []byte(v)
	return rec
}
