package fanout

import (
	"testing"
	"testing/synctest"
	"time"
)

// A repeat of a message while it is paused leaves a second copy of a chunk on hold. The first
// one ends, the message is cancelled, and the copy must not be noted in place of the first: its
// receivers have their notifications.
func TestACopyOnHoldDoesNotUndoCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(60))
		j := aliveJob(t)
		if _, err := w.notes.Begin(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		if err := w.notes.Order(t.Context(), j.Message, Cancelled, time.Now()); err != nil {
			t.Fatal(err)
		}
		h := &Holder{Producer: w.ledger, Notes: w.notes, Metrics: w.Metrics, Log: w.Log}
		if err := h.Do(t.Context(), &Work{Topic: HoldTopic(j.Lane), Value: (&Chunk{Job: j}).encode(), At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		if p, err := w.notes.Look(t.Context(), j.Message); err != nil || p.Emitted != 60 {
			t.Errorf("%d of 60 receivers are counted, %v", p.Emitted, err)
		}
	})
}
