package h2

import (
	"testing"
	"testing/synctest"
	"time"
)

// Once, an idle connection woke itself over and over: ten of them used a whole
// core.
func TestIdleConnectionDoesNotWakeItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.answerAll()
		p := s.pool(Options{Connections: 1})
		send(t, p, post("/a"))
		synctest.Wait()
		c := p.all(nil)[0]
		select {
		case <-c.wake:
			t.Error("an idle connection has a wake-up pending")
		default:
		}
		// Whoever wakes it now finds it asleep in the queue's list again.
		for range 100 {
			c.wakeUp()
			synctest.Wait()
		}
		p.queue.mu.Lock()
		defer p.queue.mu.Unlock()
		if n := len(p.queue.idle[canSend]); n != 1 || !c.registered {
			t.Errorf("%d idle connections are known, want 1", n)
		}
	})
}

// The sweeper checks all connections twenty times a second, and wakes none of
// them without a reason.
func TestSweeperLetsIdleConnectionsSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newPeer(t)
		s.answerAll()
		p := s.pool(Options{Connections: 1, PingInterval: time.Minute})
		send(t, p, post("/a"))
		synctest.Wait()
		c := p.all(nil)[0]
		worked := c.filled
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if c.filled != worked {
			t.Errorf("the writer was awake %v after the last request", c.filled.Sub(worked))
		}
	})
}
