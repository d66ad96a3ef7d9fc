package fanout

import (
	"testing"
	"testing/synctest"
	"time"
)

// A page that waits until the rate lets it go may wait for minutes. Orders are looked at
// meanwhile: what is cancelled or paused then is not written.
func TestOrdersWhileTheRateMakesWait(t *testing.T) {
	for _, order := range []State{Cancelled, Paused} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(manyUsers(60), func(l *Limits) { l.Rate, l.Page = 1, 30 })
			j := aliveJob(t)
			ended := make(chan error, 1)
			go func() { ended <- w.do(t.Context(), &Chunk{Job: j}) }()
			time.Sleep(time.Second)
			if err := w.notes.Order(t.Context(), j.Message, order, time.Now()); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > 2*lookEvery || len(w.ledger.in(j.Topic)) != 30 {
				t.Errorf("%v: seen after %s, %d records, want the 30 from before", order, took, len(w.ledger.in(j.Topic)))
			}
		})
	}
}

// A process that is stopped says how far it came, also while the rate makes it wait: else its
// time ends, and the chunk is done again from the start.
func TestLeavingWhileTheRateMakesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60), func(l *Limits) { l.Rate, l.Page = 1, 30 })
		j := aliveJob(t)
		leaving, ended := make(chan struct{}), make(chan error, 1)
		go func() { ended <- w.Do(t.Context(), &Work{Value: (&Chunk{Job: j}).encode(), Leaving: leaving}) }()
		time.Sleep(time.Second)
		close(leaving)
		start := time.Now()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		back := w.ledger.in(ChunksTopic(j.Lane))
		if took := time.Since(start); took > lookEvery || len(back) != 1 {
			t.Fatalf("given back after %s, %d chunks", took, len(back))
		}
		if err := w.Do(t.Context(), &Work{Value: back[0]}); err != nil {
			t.Fatal(err)
		}
		if by := w.ledger.receivers(t, j.Topic); len(by) != 60 || len(w.ledger.in(j.Topic)) != 60 {
			t.Errorf("%d records for %d receivers", len(w.ledger.in(j.Topic)), len(by))
		}
	})
}
