package sim

import (
	"sync"

	"github.com/pushfleet/pushfleet/providers/sim/engine"
)

const ledgerShards = 64

// Ledger knows every push that arrived, what it was answered, and what was
// accepted more than once. An entry is a notification id (pf_id in the
// payload) on a device. In counting mode it takes 13.0 to 15.7 bytes; in full
// mode the id and the device hash are kept besides. Safe for concurrent use.
type Ledger struct {
	full   bool
	shards [ledgerShards]ledgerShard
}

type ledgerShard struct {
	mu      sync.Mutex
	counts  table
	names   map[uint64]entryName // full mode only
	replies [replyCount]uint64
	hung    [OAuth + 1]uint64 // received and never decided, by provider
	lost    [OAuth + 1]uint64 // of those and the decided ones, that got no answer
	nameless,
	repeats uint64
	epoch uint16   // how often it was reset
	_     [64]byte // shards do not share a cache line
}

type entryName struct{ id, device string }

func newLedger(full bool) *Ledger {
	l := &Ledger{full: full}
	l.Reset()
	return l
}

// decision is what the ledger wrote down of a request, so that its answer can
// be dropped.
type decision struct {
	key   uint64 // of the entry; 0 for none
	reply Reply
	epoch uint16 // of the shard, when it was written down
}

// receipt is what the engine is given of it.
func (d decision) receipt() engine.Receipt {
	return engine.Receipt{Key: d.key, Note: uint32(d.reply)<<16 | uint32(d.epoch)}
}

// decisionOf is the inverse of receipt.
func decisionOf(r engine.Receipt) decision {
	return decision{r.Key, Reply(r.Note >> 16), uint16(r.Note)}
}

// observe writes down one request and its answer. An empty id is counted, and
// has no entry.
func (l *Ledger) observe(id, device []byte, r Reply) decision {
	if len(id) == 0 {
		s := &l.shards[r%ledgerShards]
		s.mu.Lock()
		s.replies[r]++
		if p := r.Provider(); r != FCMValidated && (p == APNS || p == FCM) {
			s.nameless++
		}
		epoch := s.epoch
		s.mu.Unlock()
		return decision{0, r, epoch}
	}
	key := entryKey(id, device)
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[r]++
	slot := l.slot(s, key, id, device)
	c := *slot
	if r.Accepted() {
		if c.accepted() > 0 {
			s.repeats++
		}
	}
	*slot = c.add(r)
	return decision{key, r, s.epoch}
}

// slot is the tally of an entry, made with its name when it is new. It is
// called with the shard's mu held.
func (l *Ledger) slot(s *ledgerShard, key uint64, id, device []byte) *tally {
	slot := s.counts.slot(key)
	if *slot == 0 && l.full {
		s.names[key] = entryName{string(id), string(device)}
	}
	return slot
}

// hang writes down a request that will never be decided or answered, and
// returns the key of its entry.
func (l *Ledger) hang(id, device []byte, p Provider) (key uint64) {
	if len(id) > 0 {
		key = entryKey(id, device)
	}
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung[p]++
	s.lost[p]++
	if len(id) == 0 {
		s.nameless++
		return 0
	}
	slot := l.slot(s, key, id, device)
	*slot = slot.drop()
	return key
}

// drop writes down that an answer which had been decided did not get out. With
// undone the decision is taken back too: the request was not processed. What
// was decided before a Reset stays forgotten.
func (l *Ledger) drop(d decision, undone bool) {
	key, r := d.key, d.reply
	if r == FCMValidated {
		return // no push
	}
	s := l.shard(key)
	if key == 0 {
		s = &l.shards[r%ledgerShards] // where observe counted it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.epoch != s.epoch {
		return
	}
	p := r.Provider()
	s.lost[p]++
	if undone {
		s.replies[r]--
		s.hung[p]++
	}
	if key == 0 {
		return
	}
	slot := s.counts.slot(key)
	c := slot.drop()
	if undone {
		if r.Accepted() && c.accepted() > 1 {
			s.repeats--
		}
		c = c.retract(r)
	}
	*slot = c
}

// attempts is how often this notification came for this device before.
func (l *Ledger) attempts(key uint64) int {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts.get(key)
	return c.accepted() + c.refused() + c.dropped()
}

func (l *Ledger) shard(key uint64) *ledgerShard { return &l.shards[key%ledgerShards] }

// Reset forgets everything.
func (l *Ledger) Reset() {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		s.counts, s.replies, s.nameless, s.repeats = table{}, [replyCount]uint64{}, 0, 0
		s.hung, s.lost = [OAuth + 1]uint64{}, [OAuth + 1]uint64{}
		s.epoch++
		if l.full {
			s.names = map[uint64]entryName{}
		}
		s.mu.Unlock()
	}
}
