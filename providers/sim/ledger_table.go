package sim

import (
	"math/bits"
	"slices"
)

// tally packs an entry's counts and its last Reply. It is 0 only where there is
// no entry, because an entry has been accepted, refused or dropped at least
// once, and what was dropped stays so.
//
//	31      22 21     13 12     7 6     0
//	accepted | refused | dropped | last
type tally uint32

const (
	mostAccepted = 1<<10 - 1
	mostRefused  = 1<<9 - 1
	mostDropped  = 1<<6 - 1
)

// Every Reply has to fit.
const _ = uint(127 - replyCount)

func (c tally) accepted() int { return int(c >> 22) }
func (c tally) refused() int  { return int(c >> 13 & mostRefused) }
func (c tally) dropped() int  { return int(c >> 7 & mostDropped) }
func (c tally) last() Reply   { return Reply(c & 127) }

func pack(accepted, refused, dropped int, last Reply) tally {
	return tally(min(accepted, mostAccepted)<<22 | min(refused, mostRefused)<<13 | min(dropped, mostDropped)<<7 | int(last))
}

func (c tally) add(r Reply) tally {
	if r.Accepted() {
		return pack(c.accepted()+1, c.refused(), c.dropped(), r)
	}
	return pack(c.accepted(), c.refused()+1, c.dropped(), r)
}

// drop counts a request that got no answer.
func (c tally) drop() tally { return pack(c.accepted(), c.refused(), c.dropped()+1, c.last()) }

// retract takes a decision back; a count that has reached its end stays there.
// If it was the last one, nobody knows which was before.
func (c tally) retract(r Reply) tally {
	last := c.last()
	if last == r {
		last = NoReply
	}
	a, n := c.accepted(), c.refused()
	if r.Accepted() && a > 0 && a < mostAccepted {
		a--
	}
	if !r.Accepted() && n > 0 && n < mostRefused {
		n--
	}
	return pack(a, n, c.dropped(), last)
}

// table is a hash table from 64-bit hashes to tallies, in 12 bytes a slot. The
// place of a key is its share of the hash range, and keys that cannot have
// theirs stand after it in ascending order. So the whole table is sorted: a
// search ends at the first greater key, which keeps it short in a table that is
// 92 % full, and growing is one pass. Filled to between 76 and 92 %, an entry
// takes 13.0 to 15.7 bytes.
type table struct {
	keys   []uint64
	counts []tally
	home   int // places; behind them is room for what is pushed over the end
	used   int
}

const (
	tableFullest  = 92 // percent
	tableOverhang = 64 // slots behind the last home, before a table has to grow
)

// find returns where key stands, or where it belongs.
func (t *table) find(key uint64) int {
	high, _ := bits.Mul64(key, uint64(t.home))
	i := int(high)
	for i < len(t.keys) && t.counts[i] != 0 && t.keys[i] < key {
		i++
	}
	return i
}

func (t *table) get(key uint64) tally {
	if i := t.find(key); i < len(t.keys) && t.keys[i] == key {
		return t.counts[i]
	}
	return 0
}

// slot returns where the tally of key stands, made when it is new: then it is
// 0 and the caller must fill it.
func (t *table) slot(key uint64) *tally {
	i := t.find(key)
	if i < len(t.keys) && t.counts[i] != 0 && t.keys[i] == key {
		return &t.counts[i]
	}
	for {
		if (t.used+1)*100 <= t.home*tableFullest {
			if end := slices.Index(t.counts[i:], 0); end >= 0 {
				copy(t.keys[i+1:i+end+1], t.keys[i:i+end])
				copy(t.counts[i+1:i+end+1], t.counts[i:i+end])
				t.keys[i], t.counts[i] = key, 0
				t.used++
				return &t.counts[i]
			}
		}
		t.grow()
		i = t.find(key)
	}
}

// grow makes the table a fifth bigger.
func (t *table) grow() {
	bigger := table{home: max(16, t.home+t.home/5), used: t.used}
	for !bigger.fill(t) { // so many keys at the very end of the range: hardly ever
		bigger.home += bigger.home / 5
	}
	*t = bigger
}

// fill takes over another table's entries, which come in order.
func (t *table) fill(from *table) bool {
	t.keys, t.counts = make([]uint64, t.home+tableOverhang), make([]tally, t.home+tableOverhang)
	next := 0
	for i, c := range from.counts {
		if c == 0 {
			continue
		}
		high, _ := bits.Mul64(from.keys[i], uint64(t.home))
		if next = max(next, int(high)); next == len(t.keys) {
			return false
		}
		t.keys[next], t.counts[next] = from.keys[i], c
		next++
	}
	return true
}
