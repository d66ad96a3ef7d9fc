package limits

import (
	"slices"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/shards"
)

// batch is the working memory of one Decide, reused from call to call.
type batch struct {
	reqs   []*Request
	hashes []uint64 // of the owners
	groups shards.Groups
	users  []user
	next   []int32    // next request of the same user; -1 = last
	asking []*Request // that senders are asked about

	judge   judge
	text    []byte // per writer the stamp of its old state and the new state
	names   shards.Names
	values  []blob  // stamp and new state of each writer
	writers []int32 // users that have something to store
	args    []any
	swaps   []shards.Call
	ends    []int // of each call: where its writers end
}

// user is one owner in a batch and its requests.
type user struct {
	owner       string
	hash        uint64
	shard       int
	state       []byte // that it was decided from
	fresh       bool   // it was read here, and not with the user record
	first, last int32  // requests
	held        int    // those of them that their sender holds
	write       bool   // text[from:to] is to be stored
	from, to    int
	ttl         int64 // ms
}

// group finds the users of the requests, shard by shard, and chains the
// requests of each in order, without those that are exempt. Within a shard, some 40 users of a full batch,
// looking through them is cheaper than a map.
func (b *batch) group(reqs []*Request) {
	b.reqs = reqs
	b.room(len(reqs))
	for i, r := range reqs {
		push.Prefetch(i, len(reqs), func(i int) byte { return push.Ends(reqs[i].Owner) + byte(reqs[i].Current) })
		b.hashes = append(b.hashes, shards.OwnerHash(r.Owner))
		r.Decision = Decision{Allowed: r.Exempt}
	}
	b.groups.Arrange(len(reqs), shards.Users, func(i int) int { return int(b.hashes[i] % shards.Users) })
	for range reqs {
		b.next = append(b.next, -1)
	}
	for s, indexes := range b.groups.All() {
		start := len(b.users)
		for _, i := range indexes {
			if reqs[i].Exempt {
				continue
			}
			if u := b.find(start, reqs[i].Owner, b.hashes[i]); u != nil {
				b.next[u.last] = i
				u.last = i
				continue
			}
			b.users = append(b.users, user{owner: reqs[i].Owner, hash: b.hashes[i], shard: s, state: reqs[i].State, first: i, last: i})
		}
	}
}

// room empties the buffers and makes them large enough for n requests in one
// step each: after a garbage collection they begin from nothing, and growing
// step by step costs three times the memory.
func (b *batch) room(n int) {
	b.hashes = slices.Grow(b.hashes[:0], n)
	b.users = slices.Grow(b.users[:0], n)
	b.next = slices.Grow(b.next[:0], n)
	b.text = slices.Grow(b.text[:0], n*(stampSize+headerSize+usualEvents*eventSize))
	b.values = slices.Grow(b.values[:0], 2*n)
	b.writers = slices.Grow(b.writers[:0], n)
}

// usualEvents is a number of events that most states do not exceed.
const usualEvents = 4

func (b *batch) find(start int, owner string, hash uint64) *user {
	for j := start; j < len(b.users); j++ {
		if u := &b.users[j]; u.hash == hash && u.owner == owner {
			return u
		}
	}
	return nil
}

// lines sums a byte of each line of memory that is needed to decide the first request of
// a user: see push.Prefetching.
func (b *batch) lines(i int) byte {
	u := &b.users[i]
	r := b.reqs[u.first]
	sum := push.Ends(u.state) + push.Ends(r.ID) + push.Ends(r.Type) + byte(len(r.App)) + byte(len(r.State)) + byte(r.Jitter) + byte(r.Current)
	if len(u.state) > 64 {
		sum += u.state[64]
	}
	if len(r.Devices) > 0 {
		sum += byte(r.Devices[0].Hash)
	}
	return sum
}

// source is what the rules of senders tell apart within a lane.
type source struct{ sender, kind, app string }

func (r *Request) source() source { return source{r.Sender, r.Type, r.App} }

// waiting finds what senders are to be asked about in a turn: what is allowed, and
// later, as maxTurns says, what else there is of users of whom they hold something.
func (b *batch) waiting(turn int) {
	b.asking = b.asking[:0]
	if turn < maxTurns {
		for _, r := range b.reqs {
			if r.Allowed && r.asks() {
				b.asking = append(b.asking, r)
			}
		}
		return
	}
	for i := range b.users {
		u := &b.users[i]
		if u.held == 0 {
			continue
		}
		var holding []source
		for k := u.first; k >= 0 && turn < 2*maxTurns; k = b.next[k] {
			if r := b.reqs[k]; r.held() && !slices.Contains(holding, r.source()) {
				holding = append(holding, r.source())
			}
		}
		for k := u.first; k >= 0; k = b.next[k] {
			r := b.reqs[k]
			if r.asks() && !r.held() && (r.Allowed || turn >= 2*maxTurns || slices.Contains(holding, r.source())) {
				b.asking = append(b.asking, r)
			}
		}
	}
}

// held counts what senders hold of a user's requests.
func (b *batch) held(u *user) (n int) {
	for i := u.first; i >= 0; i = b.next[i] {
		if b.reqs[i].held() {
			n++
		}
	}
	return n
}

// resetLogs undoes what was decided of a user's devices.
func (b *batch) resetLogs(u *user) {
	for i := u.first; i >= 0; i = b.next[i] {
		for _, d := range b.reqs[i].Devices {
			if l := b.judge.logs[logKey{u.owner, d.Hash}]; l != nil {
				l.reset()
			}
		}
	}
}

// release drops all references to what belongs to the caller.
func (b *batch) release() {
	b.reqs, b.judge.logs = nil, nil
	clear(b.judge.noted[:cap(b.judge.noted)])
	clear(b.users)
	clear(b.asking[:cap(b.asking)])
	// The last round, in which nothing was left to store, has emptied these.
	clear(b.args[:cap(b.args)])
	clear(b.values[:cap(b.values)])
	clear(b.swaps[:cap(b.swaps)])
}

// blob is an argument of a command. By its address it is passed on without a
// copy or an allocation.
type blob []byte

// MarshalBinary implements encoding.BinaryMarshaler.
func (b *blob) MarshalBinary() ([]byte, error) { return *b, nil }
