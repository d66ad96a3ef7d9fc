package h2

import (
	"testing"
	"testing/synctest"
	"time"
)

// An idle connection once woke itself over and over: ten of them used a core.
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
		_ = time.Now
	})
}
