package engine

import "time"

// write sends what is due until the connection ends. All that has become due
// meanwhile goes out in one write.
func (c *Conn) write() {
	var spare batch
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, stop := c.collect(&spare)
		switch {
		case len(spare.frames) > 0:
			_ = c.conn.SetWriteDeadline(time.Now().Add(writeTime)) // Write reports it
			if n, err := c.conn.Write(spare.frames); err != nil {
				c.lose(&spare, n)
				c.fail()
				return
			}
		case stop:
			c.bye()
			return
		case next > 0:
			timer.Reset(next)
			select {
			case <-c.wake:
			case <-timer.C:
			}
		default:
			<-c.wake
		}
	}
}

// collect takes what is due into spare, whose memory the next will use. It
// returns how long it is until there is more to do, 0 for never, and whether
// the connection is at its end once spare is written.
func (c *Conn) collect(spare *batch) (next time.Duration, stop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = false
	spare.frames, spare.owed = spare.frames[:0], spare.owed[:0]
	if c.failed {
		return 0, true
	}
	now := time.Now()
	n, next := c.wheel.due(now, &c.out)
	next = sooner(next, c.sendWaiting(now))
	c.open -= n
	if c.open == 0 {
		next = sooner(next, c.session.Idle(Held{c}))
	}
	*spare, c.out = c.out, *spare
	c.writing = len(spare.frames) > 0
	for i := range spare.owed {
		c.settled = max(c.settled, spare.owed[i].stream)
	}
	if len(spare.frames) > 0 || !c.leaving {
		return next, false
	}
	if c.open == 0 {
		c.closeIdle()
	}
	if !c.closing {
		return next, false
	}
	return sooner(next, max(c.leaveBy.Sub(now), 1)), c.open == 0 || c.abrupt || !now.Before(c.leaveBy)
}

func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// lose tells the session of answers whose write failed after some bytes: those
// that were not complete with them.
func (c *Conn) lose(b *batch, written int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := b.complete(written)
	for _, o := range b.owed {
		if !out[o.stream] {
			c.drop(o, false)
		}
	}
}

// bye ends the connection in a way that lets the client read what was written:
// closing a socket with unread bytes would reset it.
func (c *Conn) bye() {
	c.mu.Lock()
	c.bidden = true
	failed := c.failed
	c.mu.Unlock()
	if failed {
		return // a goodbye would come before the reset
	}
	_ = c.conn.CloseWrite() // the client may be gone
	if c.socket.SetReadDeadline(time.Now().Add(drainTime)) != nil {
		c.fail()
	}
}
