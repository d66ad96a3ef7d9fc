package pipeline

import (
	"sync/atomic"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// countedFor is how far ahead expiries are counted, in seconds.
const countedFor = 256

// expiries counts what waits by the second in which it expires, as far as that is less
// than countedFor ahead when it comes, and what is critical. All methods may be called at
// once.
type expiries struct {
	critical atomic.Int64
	seconds  [countedFor]atomic.Int64 // by the Unix second, modulo countedFor
}

// Where an item is counted: not at all, or one more than the place of its second.
const (
	countedCritical = countedFor + 1
	notCounted      = 0
)

// add counts an item, and returns where.
func (e *expiries) add(it *Item) uint16 {
	switch ahead := time.Until(it.ExpiresAt); {
	case it.Priority == push.Critical:
		e.critical.Add(1)
		return countedCritical
	case it.ExpiresAt.IsZero(), ahead < 0, ahead >= (countedFor-1)*time.Second:
		return notCounted
	}
	at := it.ExpiresAt.Unix() % countedFor
	e.seconds[at].Add(1)
	return uint16(at + 1)
}

// left ends the count of an item.
func (e *expiries) left(it *Item) {
	if it.counted == countedCritical {
		e.critical.Add(-1)
		return
	}
	e.seconds[it.counted-1].Add(-1)
}

// until returns how many are critical or expire from now to the second of a time.
func (e *expiries) until(end, now time.Time) (n int64, ok bool) {
	if end.Sub(now) >= (countedFor-1)*time.Second {
		return 0, false
	}
	n = e.critical.Load()
	for s := now.Unix(); s <= end.Unix(); s++ {
		n += e.seconds[s%countedFor].Load()
	}
	return n, true
}
