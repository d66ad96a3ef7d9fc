package quota

import (
	"context"
	"testing"
	"time"
)

// The first answer of Redis takes longer than a message waits otherwise: nobody is refused for
// that, and the next one waits for nothing.
func TestTheFirstMessageOfAGateway(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 20_000}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		g.link.set(20 * time.Millisecond) // of each direction, and the first connection asks more than once
		taken, took := g.take(1)
		if taken.Len() != 1 || took <= MaxWait || took > time.Second {
			t.Errorf("%d were admitted after %s", taken.Len(), took)
		}
		g.link.set(time.Millisecond)
		time.Sleep(2 * time.Second)
		if taken, took := g.take(1); taken.Len() != 1 || took > 20*time.Millisecond {
			t.Errorf("later %d were admitted after %s", taken.Len(), took)
		}
		f.over(0)
	})
}

// Without a Redis the first messages have the gateway's part, as soon as it is known to be away.
func TestTheFirstMessageWithoutRedis(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 1000}, Gateways: 4}, func(f *fleet) {
		f.redis.Close()
		g := f.join()
		defer g.close()
		for range 5 {
			f.running.Go(func() {
				if taken, took := g.take(50); taken.Len() != 50 || took < silence || took > silence+every+MaxWait {
					t.Errorf("%d were admitted after %s", taken.Len(), took)
				}
			})
		}
		f.running.Wait()
		if taken, took := g.take(1); taken.Len() != 0 || took > 0 { // 250 have been
			t.Errorf("%d more were admitted after %s", taken.Len(), took)
		}
	})
}

// Of those who wait for a first answer there are few: others would have no request left.
func TestFewWaitForTheFirstAnswer(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 1_000_000}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		g.link.set(20 * time.Millisecond) // of each direction: an ask is answered in time, the first one is not
		const others = 20
		long := make(chan bool, firsts+others)
		for range firsts + others {
			f.running.Go(func() {
				taken, took := g.take(1)
				long <- took > MaxWait
				if (taken.Len() == 1) != (took > MaxWait) {
					t.Errorf("%d were admitted after %s", taken.Len(), took)
				}
			})
		}
		f.running.Wait()
		waited := 0
		for range firsts + others {
			if <-long {
				waited++
			}
		}
		if waited != firsts {
			t.Errorf("%d waited for the first answer, want %d", waited, firsts)
		}
	})
}

// When Redis has answered once, it is known to be there: nobody waits longer than others from then on.
func TestTheFirstAnswerEndsTheWait(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 10}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		g.link.set(20 * time.Millisecond)
		began := time.Now()
		ended := make(chan time.Duration, 2) // by whom it was answered for first
		take := func() {
			taken, _ := g.take(1)
			if at := time.Since(began); taken.Len() == 1 {
				g.link.set(10 * time.Second)
				ended <- at
			} else {
				ended <- -at
			}
		}
		f.running.Go(take)
		time.Sleep(30 * time.Millisecond) // the first ask is under way, and asks for one message
		f.running.Go(take)
		f.running.Wait()
		g.link.set(0)
		if first, other := <-ended, <-ended; first <= MaxWait || other != -(first+MaxWait) {
			t.Errorf("one was admitted after %s, and the other ended at %s, want refused %s later", first, other, MaxWait)
		}
	})
}

// Of a gateway that knows Redis a new sender waits no longer than others, nor while it is away.
func TestANewSenderOfAnOldGateway(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 1000}, Gateways: 4}, func(f *fleet) {
		g := f.join()
		defer g.close()
		g.take(1)
		g.link.set(100 * time.Millisecond)
		began := time.Now()
		if taken := g.Of("b").Take(context.Background(), 1); taken.Len() != 0 || time.Since(began) != MaxWait {
			t.Errorf("%d were admitted after %s", taken.Len(), time.Since(began))
		}
		g.link.set(0)
		f.redis.Close()
		for range 50 {
			g.take(1)
			time.Sleep(100 * time.Millisecond)
		}
		began = time.Now()
		if taken := g.Of("c").Take(context.Background(), 1); taken.Len() != 0 || time.Since(began) != MaxWait {
			t.Errorf("while Redis is away %d were admitted after %s", taken.Len(), time.Since(began))
		}
	})
}

// Who has gone takes no place of those who wait for the first answer.
func TestWhoHasGoneDoesNotComeFirst(t *testing.T) {
	inFleet(t, Options{Default: Limits{Minute: 1_000_000}}, func(f *fleet) {
		g := f.join()
		defer g.close()
		g.link.set(20 * time.Millisecond)
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		for range 2 * firsts {
			g.Of("a").Take(gone, 1)
		}
		if taken, took := g.take(1); taken.Len() != 1 || took <= MaxWait {
			t.Errorf("%d were admitted after %s", taken.Len(), took)
		}
	})
}
