package fanout

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// purse is a quota in memory: of one sender, who may reach so many receivers.
type purse struct {
	left    int64
	none    bool          // the sender has no limit
	counted map[int]int64 // by part
	settled []int
	err     error
}

func (p *purse) Limits(string) bool { return !p.none }

func (p *purse) Spend(_ context.Context, _ string, _ [16]byte, part int, had, upTo int64) (int64, error) {
	if p.err != nil {
		return 0, p.err
	}
	counted := max(p.counted[part], had)
	given := min(max(upTo-counted, 0), p.left)
	p.left -= given
	p.counted[part] = counted + given
	return min(counted+given, upTo), nil
}

func (p *purse) Settle(_ context.Context, _ string, _ [16]byte, part int) error {
	p.settled = append(p.settled, part)
	return p.err
}

// held is the newest chunk in the lane's hold.
func (w *world) held(t *testing.T, j *Job) *Chunk {
	t.Helper()
	values := w.ledger.in(HoldTopic(j.Lane))
	if len(values) == 0 {
		t.Fatal("no chunk is held")
	}
	c, err := DecodeChunk(values[len(values)-1])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newLimited is a message that has begun, whose sender may reach so many receivers.
func newLimited(t *testing.T, members []Member, left int64) (*world, *purse, *Job) {
	t.Helper()
	w, q, j := newWorld(members), &purse{left: left, counted: map[int]int64{}}, aliveJob(t)
	w.Emitter.Quota = q
	if _, err := w.notes.Begin(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	return w, q, j
}

// A sender who may reach no more receivers waits in the hold, within a page where it must
// be, and goes on from there: each subscriber gets the message once, and who is skipped
// is not counted.
func TestASenderReachesNoMoreThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := manyUsers(35)
		members[3].Pull, members[20].Left = true, true
		w, q, j := newLimited(t, members, 15)
		for i, want := range []int{15, 15, 22, 33} { // pages are of 10: 15 end in the second one
			c := &Chunk{Job: j}
			if i > 0 {
				c = w.held(t, j)
			}
			if i > 1 {
				q.left = []int64{7, 100}[i-2]
			}
			if i == 3 {
				q.counted = map[int]int64{} // the next day: what its record says is known, and no more
			}
			time.Sleep(askAgain)
			if err := w.do(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if by := w.ledger.receivers(t, j.Topic); len(by) != want {
				t.Errorf("%d: %d receivers, want %d", i, len(by), want)
			}
		}
		for user, ids := range w.ledger.receivers(t, j.Topic) {
			if len(ids) != 1 || ids[ID(j.Message, user)] != 1 {
				t.Errorf("%s got %v", user, ids)
			}
		}
		if q.left != 100-11 || !slices.Equal(q.settled, []int{0}) {
			t.Errorf("%d are left of the limit, and %v have ended", q.left, q.settled)
		}
		p, err := w.notes.Look(t.Context(), j.Message)
		if err != nil || len(p.Ended) != 1 || p.Emitted != 33 || p.ByReason()["pull"] != 1 {
			t.Errorf("noted %+v, %v", p, err)
		}
	})
}

// A worker that dies within a chunk leaves it as it was: what it has reached is not counted
// again.
func TestAChunkDoneAnewIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, j := newLimited(t, manyUsers(30), 30)
		w.crowd.onRead = func(read int) {
			w.crowd.err = nil
			if read == 3 {
				w.crowd.err = errFake
			}
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err == nil {
			t.Fatal("the audience could not be read, and nobody said so")
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		if by := w.ledger.receivers(t, j.Topic); len(by) != 30 || q.left != 0 {
			t.Errorf("%d receivers, %d left of 30; want all, and none", len(by), q.left)
		}
	})
}

// The chunks of a sender who may reach nobody more read no receivers whenever they come out
// of the hold, and go on soon after it may.
func TestChunksOverTheLimitCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(5))
		q := &purse{counted: map[int]int64{}}
		w.Emitter.Quota = q
		j := aliveJob(t)
		for i := range 10 {
			if err := w.do(t.Context(), &Chunk{Job: j}); err != nil || len(w.ledger.in(HoldTopic(j.Lane))) != i+1 {
				t.Fatalf("%v, and %d times it was held", err, len(w.ledger.in(HoldTopic(j.Lane))))
			}
		}
		if w.crowd.reads != 1 {
			t.Errorf("receivers were read %d times, want once", w.crowd.reads)
		}
		q.left = 5
		time.Sleep(askAgain)
		if err := w.do(t.Context(), w.held(t, j)); err != nil || len(w.ledger.receivers(t, j.Topic)) != 5 {
			t.Errorf("%v, and %d were reached, want 5", err, len(w.ledger.receivers(t, j.Topic)))
		}
	})
}

// A day that begins within a chunk counts who is reached on it, and not those of the day
// before: there would be nothing left of it for them.
func TestAChunkOverMidnightIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, j := newLimited(t, manyUsers(30), 30)
		w.crowd.onRead = func(read int) {
			if read == 3 {
				q.left, q.counted = 10, map[int]int64{}
			}
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
			t.Fatal(err)
		}
		if by := w.ledger.receivers(t, j.Topic); len(by) != 30 || q.left != 0 {
			t.Errorf("%d receivers, %d left of 10; want all, and none", len(by), q.left)
		}
	})
}

// While nobody can say how many are left, nobody is reached, and the chunk waits where it keeps
// nobody else waiting, as far as it came.
func TestALimitThatIsAwayStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, q, j := newLimited(t, manyUsers(25), 25)
		w.crowd.onRead = func(read int) {
			if read == 2 {
				q.err = errFake
			}
		}
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil || w.held(t, j).Done.Emitted != 10 || len(w.ledger.receivers(t, j.Topic)) != 10 {
			t.Fatalf("%v, held after %d, and %d were reached, want 10", err, w.held(t, j).Done.Emitted, len(w.ledger.receivers(t, j.Topic)))
		}
		q.err, w.crowd.onRead = nil, nil
		if err := w.do(t.Context(), w.held(t, j)); err != nil || len(w.ledger.receivers(t, j.Topic)) != 25 || q.left != 0 {
			t.Errorf("then %v, %d were reached, and %d are left", err, len(w.ledger.receivers(t, j.Topic)), q.left)
		}
	})
}

// A process that ends while it asks puts nothing into the hold: the next one begins where it
// began.
func TestALimitThatIsAskedForAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(manyUsers(5))
		ctx, stop := context.WithCancel(t.Context())
		w.Emitter.Quota = &purse{err: context.Canceled}
		w.crowd.onRead = func(int) { stop() }
		if err := w.do(ctx, &Chunk{Job: aliveJob(t)}); !errors.Is(err, context.Canceled) || len(w.ledger.in(HoldTopic("promotional"))) != 0 {
			t.Errorf("%v, and %d are held", err, len(w.ledger.in(HoldTopic("promotional"))))
		}
	})
}

// While nobody can say how many are left, a chunk that reaches nobody ends.
func TestAChunkThatReachesNobodyNeedsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := manyUsers(1)
		members[0].Left = true
		w := newWorld(members)
		w.Emitter.Quota = &purse{err: errFake}
		j := aliveJob(t)
		if err := w.do(t.Context(), &Chunk{Job: j}); err != nil || len(w.ledger.in(HoldTopic(j.Lane))) != 0 {
			t.Errorf("a chunk that reaches nobody: %v", err)
		}
	})
}

// Records of a sender whose receivers are limited say that they were counted, and others not.
func TestCountedRecordsSaySo(t *testing.T) {
	for _, want := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w, q, j := newLimited(t, manyUsers(15), 100)
			q.none = !want
			if err := w.do(t.Context(), &Chunk{Job: j}); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, r := range w.ledger.written {
				if r.Topic != j.Topic {
					continue
				}
				if n++; r.Admitted != want {
					t.Errorf("with a limit %v: a record says %v", want, r.Admitted)
				}
			}
			if n != 15 {
				t.Errorf("with a limit %v: %d records", want, n)
			}
		})
	}
}
