package h2

import (
	"math/rand/v2"
	"time"
)

// slot is the place of one connection in the pool: it opens one whenever there
// is demand and the last one takes no more requests. The last one may still be
// finishing its own.
type slot struct {
	pool *Pool
	waiter
}

// keep works until the pool stops.
func (s *slot) keep() {
	p := s.pool
	failures := 0
	for {
		for !p.queue.demand(&s.waiter) {
			select {
			case <-s.wake:
			case <-p.stop.Done():
				p.queue.leave(&s.waiter)
				return
			}
		}
		if left := p.calm.left(time.Now()); left > 0 {
			if !s.pause(left) {
				p.queue.leave(&s.waiter)
				return
			}
			continue // the open connections may have taken it all by now
		}
		c := s.open()
		if c == nil {
			p.stats.dialFailures.Add(1)
		} else {
			<-c.used // Close retires all connections: it ends then, too
		}
		if c != nil && c.answered.Load() {
			failures = 0
			continue
		}
		// A server that hangs up before its first answer is not to be dialed in a
		// tight loop either. Whatever woke this slot is left to others for now.
		failures++
		p.queue.pass(&s.waiter)
		if !s.pause(backoff(p.opt.Backoff, p.opt.MaxBackoff, failures, rand.Int64N)) {
			return
		}
		if c != nil && c.answered.Load() {
			failures = 0 // it went away, but not without an answer
		}
	}
}

// pause waits, and reports false when the pool stopped meanwhile.
func (s *slot) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.pool.stop.Done():
		return false
	}
}

// open dials and starts a connection. It returns nil when there is none.
func (s *slot) open() *conn {
	p := s.pool
	var number int64
	nc, raw, err := p.dials.dial(p.stop, func() { number = p.stats.dials.Add(1) })
	if err != nil {
		if p.stop.Err() == nil {
			p.troubles.dial(time.Now(), err)
		}
		return nil // counted; the requests say how long they waited
	}
	c := newConn(p, nc, raw)
	c.number = uint32(number)
	if !p.adopt(c) {
		_ = raw.Close() // the pool is closing, nothing was sent
		return nil
	}
	p.keepers.Go(c.run)
	return c
}
