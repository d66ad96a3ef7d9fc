package sim

// Entry is what the ledger knows of one notification on one device. Counts
// stop at 1,023 accepted, 511 refused and 63 dropped.
type Entry struct {
	Key      uint64 // hash of ID and Device
	ID       string // empty in counting mode
	Device   string // DeviceHash; empty in counting mode
	Accepted int    // how often the provider said yes
	Refused  int    // how often it said anything else
	// Dropped is how often it came and got no answer. What had been accepted
	// before its connection ended is in Accepted as well; what the provider says
	// it never processed (above GOAWAY's last stream, never to be answered) is
	// not.
	Dropped int
	Last    Reply // its latest answer; NoReply if that was taken back, or never made
}

// Entry returns what is known of a notification on a device, named by its
// DeviceHash. ok is false when it never came.
func (l *Ledger) Entry(id, device string) (e Entry, ok bool) {
	key := entryKey([]byte(id), []byte(device))
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts.get(key)
	if c == 0 {
		return Entry{}, false
	}
	return c.entry(key, id, device), true
}

func (c tally) entry(key uint64, id, device string) Entry {
	return Entry{Key: key, ID: id, Device: device, Accepted: c.accepted(), Refused: c.refused(), Dropped: c.dropped(), Last: c.last()}
}

// Accepted is how often a notification was accepted for a device, named by its
// DeviceHash.
func (l *Ledger) Accepted(id, device string) int {
	e, _ := l.Entry(id, device)
	return e.Accepted
}

// Notification returns the entries of one id on all devices. It needs full
// mode, and looks at every entry: it is for tests and people.
func (l *Ledger) Notification(id string) []Entry {
	var found []Entry
	l.Each(func(e Entry) bool {
		if e.ID == id {
			found = append(found, e)
		}
		return true
	})
	return found
}

// Device returns the entries of one device, named by its DeviceHash. It needs
// full mode, and looks at every entry.
func (l *Ledger) Device(hash string) []Entry {
	var found []Entry
	l.Each(func(e Entry) bool {
		if e.Device == hash {
			found = append(found, e)
		}
		return true
	})
	return found
}

// Each calls f for every entry, in no order, until it returns false. What
// arrives meanwhile may be missing. f must not call the ledger.
func (l *Ledger) Each(f func(Entry) bool) {
	for i := range l.shards {
		if !l.shards[i].each(f) {
			return
		}
	}
}

func (s *ledgerShard) each(f func(Entry) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.counts.counts {
		if c == 0 {
			continue
		}
		key := s.counts.keys[i]
		n := s.names[key]
		if !f(c.entry(key, n.id, n.device)) {
			return false
		}
	}
	return true
}

// eachCopied is Each without holding a lock while f runs; at the cost of a copy
// of one shard at a time.
func (l *Ledger) eachCopied(f func(Entry) bool) {
	var copied []Entry
	for i := range l.shards {
		copied = copied[:0]
		l.shards[i].each(func(e Entry) bool { copied = append(copied, e); return true })
		for _, e := range copied {
			if !f(e) {
				return
			}
		}
	}
}
