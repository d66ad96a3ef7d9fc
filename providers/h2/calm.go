package h2

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// maxCalm is how often, at most, the streams of a connection are halved.
const maxCalm = 10

// recovery is how long a step of slowing down lasts after its pause, in lengths
// of that pause.
const recovery = 4

// calm slows down a whole pool when its server asks for it, by
// ENHANCE_YOUR_CALM or in its own words (Pool.Calm):
//
//	complaint   nothing is opened, no stream and no connection, for a pause;
//	            what is in flight goes on, and more complaints meanwhile are
//	            about the same
//	afterwards  half of the streams, and dials at the slow pace
//	another     the pause doubles, the streams are halved again
//	none for    one step back, and so on until all is as before
//	4 pauses
//
// The pool's sweeper advances it.
type calm struct {
	// Read by writers: whether the pool is paused, and how often the streams are
	// halved.
	paused atomic.Bool
	shift  atomic.Int32

	mu    sync.Mutex
	until time.Time     // paused: its end; else when one step is taken back
	pause time.Duration // of the latest step, without jitter
	count int64         // complaints that counted
}

// complain notes a complaint.
func (k *calm) complain(now time.Time, first, most time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.paused.Load() {
		return
	}
	k.count++
	if k.pause = min(2*k.pause, most); k.shift.Load() == 0 {
		k.pause = first
	}
	k.shift.Store(min(k.shift.Load()+1, maxCalm))
	// Jitter: workers that were slowed down together must not come back together.
	k.until = now.Add(k.pause + rand.N(k.pause/4+1))
	k.paused.Store(true)
}

// sweep lets time pass, and reports whether more may be opened than before.
func (k *calm) sweep(now time.Time) bool {
	if k.shift.Load() == 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.until) {
		return false
	}
	if k.paused.Load() {
		k.paused.Store(false)
	} else {
		k.shift.Add(-1)
		k.pause /= 2
	}
	k.until = now.Add(recovery * k.pause)
	return true
}

// left is how much of the pause is left.
func (k *calm) left(now time.Time) time.Duration {
	if !k.paused.Load() {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return max(k.until.Sub(now), sweepInterval) // the sweeper decides when it ends
}

func (k *calm) complaints() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// Calm slows the pool down as the server's ENHANCE_YOUR_CALM does: for an
// answer in which it asks for that in words of its own. Calls during a pause
// count as one.
func (p *Pool) Calm() { p.calm.complain(time.Now(), p.opt.CalmPause, p.opt.MaxCalmPause) }

// pings is how long silence lasts before a PING. Each complaint about PINGs
// doubles it, for good, up to eight times what the options say.
type pings struct{ doubled atomic.Int32 }

func (p *pings) tooMany() { p.doubled.Store(min(p.doubled.Load()+1, 3)) }

func (p *pings) interval(o *Options) time.Duration { return o.PingInterval << p.doubled.Load() }
