package fanout

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// Who is passed gets nothing and is counted nowhere, and a part goes on behind him: the quota
// does not hear of him either.
func TestPassedOnesAreOnlyAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := manyUsers(40)
		for i := range members {
			members[i].Passed = i%4 != 0
		}
		w, q, j := newLimited(t, members, 10)
		w.crowd.onRead = func(read int) {
			if read == 3 {
				w.crowd.err = fmt.Errorf("numbers cannot be read: %w", ErrNoAudience)
			}
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		held := w.held(t, j)
		if want := w.crowd.members[19].User; held.Done.After != want {
			t.Errorf("goes on behind %s, want %s", held.Done.After, want)
		}
		w.crowd.err, w.crowd.onRead = nil, nil
		if err := w.do(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		p, err := w.notes.Look(t.Context(), j.Message)
		if err != nil || p.Emitted != 10 || len(p.ByReason()) != 0 || len(w.ledger.receivers(t, j.Topic)) != 10 || q.left != 0 {
			t.Errorf("%+v, %v; %d left", p, err, q.left)
		}
	})
}
