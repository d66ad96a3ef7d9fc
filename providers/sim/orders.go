package sim

import (
	"sync"
	"sync/atomic"
	"time"
)

// order is an act that waits for its requests: the next few, or all of some
// time.
type order struct {
	provider Provider
	conn     uint64 // 0 means any
	home     string // of the push; empty means any
	act      Act
	times    int       // 0 means all
	until    time.Time // simulated; zero means for ever
	by       string
}

// orders are the acts that commands and schedules have left for requests to
// come. The oldest that fits counts.
type orders struct {
	waiting atomic.Int64 // how many: none is the common case

	mu   sync.Mutex
	list []order
}

func (o *orders) add(n order) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, n)
	o.waiting.Store(int64(len(o.list)))
}

func (o *orders) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = nil
	o.waiting.Store(0)
}

// take returns what is to be done to a request, if anything, and who said so.
func (o *orders) take(p *push) (*Act, string) {
	if o.waiting.Load() == 0 {
		return nil, ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := p.req.now
	var found *Act
	by := ""
	kept := o.list[:0]
	for _, n := range o.list {
		if !n.until.IsZero() && !now.Before(n.until) {
			continue
		}
		if found == nil && n.provider == p.provider && (n.conn == 0 || n.conn == p.req.Conn.id) && (n.home == "" || n.home == p.home) {
			act := n.act
			found, by = &act, n.by
			if n.times == 1 {
				continue
			}
			n.times = max(0, n.times-1)
		}
		kept = append(kept, n)
	}
	clear(o.list[len(kept):])
	o.list = kept
	o.waiting.Store(int64(len(kept)))
	return found, by
}
