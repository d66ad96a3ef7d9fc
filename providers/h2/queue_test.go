package h2

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func requests(n int) []*Request {
	rs := make([]*Request, n)
	for i := range rs {
		rs[i] = &Request{until: time.Now().Add(time.Hour)}
	}
	return rs
}

// one takes one request, or none.
func one(q *queue, w *waiter) *Request {
	if rs := q.take(w, nil, 1, 1); len(rs) > 0 {
		return rs[0]
	}
	return nil
}

func TestQueueSharesByWeight(t *testing.T) {
	q := newQueue([]Lane{{"critical", 6, 1000}, {"normal", 3, 1000}, {"bulk", 1, 1000}})
	for l := range 3 {
		rs := requests(1000)
		for _, r := range rs {
			r.lane = l
		}
		if n, err := q.push(t.Context(), l, rs); n != 1000 || err != nil {
			t.Fatalf("push: %d, %v", n, err)
		}
	}
	var got [3]int
	s := newWaiter()
	for range 1000 {
		got[one(q, &s).lane]++
	}
	if got != [3]int{600, 300, 100} {
		t.Errorf("of 1000: %v, want 600, 300, 100", got)
	}
	// Once the others are empty, the last lane gets everything.
	for range 2000 {
		one(q, &s)
	}
	if one(q, &s) != nil {
		t.Error("more came out than went in")
	}
}

// What a lane has taken before it is closed, or its caller gives up, is told: only the
// rest is still the caller's.
func TestQueueTellsHowManyItTook(t *testing.T) {
	for _, tt := range []struct {
		why    string
		closes bool
		want   error
	}{
		{"closed", true, ErrClosed},
		{"given up", false, context.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue([]Lane{{"only", 1, 2}})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				synctest.Wait() // for the push to wait
				if tt.closes {
					q.close()
				} else {
					cancel()
				}
			}()
			if n, err := q.push(ctx, 0, requests(3)); n != 2 || !errors.Is(err, tt.want) {
				t.Errorf("%s: got %d taken (error %v), want 2 and %v", tt.why, n, err, tt.want)
			}
		})
	}
}

func TestQueueBlocksOneLaneOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue([]Lane{{"a", 1, 4}, {"b", 1, 4}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n, err := q.push(ctx, 0, requests(6))
		if n != 4 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("full lane: %d, %v; want 4 taken and the deadline", n, err)
		}
		if n, err := q.push(t.Context(), 1, requests(4)); n != 4 || err != nil {
			t.Errorf("the other lane: %d, %v", n, err)
		}
		// When there is room, the rest is let in.
		done := make(chan int)
		go func() {
			n, _ := q.push(t.Context(), 0, requests(3))
			done <- n
		}()
		s := newWaiter()
		for range 8 {
			one(q, &s)
		}
		if n := <-done; n != 3 {
			t.Errorf("after room was made: %d taken, want 3", n)
		}
		q.close()
		if n, err := q.push(t.Context(), 0, requests(1)); n != 0 || !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %d, %v", n, err)
		}
	})
}

// hooked is a context that counts what waits for its end.
type hooked struct {
	context.Context
	done  chan struct{}
	hooks int
}

func (h *hooked) Done() <-chan struct{} { return h.done }

// AfterFunc is what context.AfterFunc calls.
func (h *hooked) AfterFunc(func()) func() bool {
	h.hooks++
	return func() bool { h.hooks--; return true }
}

// A submitter that had to wait leaves nothing registered with its context,
// which may live as long as the process.
func TestQueueLeavesNothingAtAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue([]Lane{{"a", 1, 1}})
		ctx := &hooked{Context: t.Context(), done: make(chan struct{})}
		pushed := make(chan error)
		go func() {
			_, err := q.push(ctx, 0, requests(5))
			pushed <- err
		}()
		synctest.Wait()
		if ctx.hooks != 1 {
			t.Errorf("%d hooks while it waits, want 1", ctx.hooks)
		}
		s := newWaiter()
		for range 5 {
			one(q, &s)
			synctest.Wait()
		}
		if err := <-pushed; err != nil || ctx.hooks != 0 {
			t.Errorf("%v; %d hooks are left", err, ctx.hooks)
		}
	})
}

// A batch that is longer than its lane is queued in pieces: each as long as
// there is room for, or the rest. Nothing is lost or queued twice.
func TestQueueTakesALongBatchInPieces(t *testing.T) {
	for _, n := range []int{5, 8, 9, 11, 40} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue([]Lane{{"a", 1, 4}})
			rs := requests(n)
			pushed := make(chan int)
			go func() {
				k, _ := q.push(t.Context(), 0, rs)
				pushed <- k
			}()
			s := newWaiter()
			for i := 0; i < n; i++ {
				synctest.Wait()
				if want := min(n-i, 4); q.len() != want {
					t.Errorf("%d of %d wait in a lane of 4, want %d; %d were taken", q.len(), n, want, i)
				}
				got := one(q, &s)
				if got != rs[i] {
					t.Fatalf("request %d of %d: another one, or none", i, n)
				}
			}
			if k := <-pushed; k != n || q.len() != 0 {
				t.Errorf("%d of %d taken, %d left", k, n, q.len())
			}
		})
	}
}

func TestQueueKeepsOrderAndPlace(t *testing.T) {
	q := newQueue([]Lane{{"a", 1, 100}})
	rs := requests(40)
	for i, r := range rs {
		r.Tag = i
	}
	rs[3].until = time.Now().Add(-time.Second)
	rs[39].Expires = time.Now().Add(-time.Second)
	if _, err := q.push(t.Context(), 0, rs); err != nil {
		t.Fatal(err)
	}
	s := newWaiter()
	first := one(q, &s)
	if !q.putBack(first) {
		t.Fatal("put back refused")
	}
	late := q.overdue(time.Now(), nil, nil)
	if len(late) != 2 || late[0].Tag != 3 || late[1].Tag != 39 {
		t.Errorf("overdue: %d requests", len(late))
	}
	for want := range 39 {
		if want == 3 {
			continue
		}
		if got := one(q, &s); got.Tag != want {
			t.Fatalf("got %v, want %d", got.Tag, want)
		}
	}
	if one(q, &s) != nil || !s.registered {
		t.Error("an empty queue must register who asks")
	}
	if _, err := q.push(t.Context(), 0, requests(1)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.wake:
	default:
		t.Error("a new request wakes nobody")
	}
}

// Overdue requests leave all lanes, make room in each, and no longer wait.
func TestQueueOverdueInAllLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue([]Lane{{"a", 1, 4}, {"b", 1, 4}, {"c", 1, 4}})
		var pushing sync.WaitGroup
		for l := range q.lanes {
			rs := requests(5) // one more than there is room for
			for i, r := range rs {
				r.lane = l
				if i < 2 {
					r.until = time.Now().Add(time.Second)
				}
			}
			pushing.Go(func() {
				if n, err := q.push(t.Context(), l, rs); n != 5 || err != nil {
					t.Errorf("lane %d: %d pushed, %v", l, n, err)
				}
			})
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		late := q.overdue(time.Now(), nil, nil)
		pushing.Wait()
		if len(late) != 6 || q.len() != 9 {
			t.Errorf("%d of 6 are overdue; %d wait, want 9", len(late), q.len())
		}
	})
}

func TestQueueWakesAnotherWhenOneCannot(t *testing.T) {
	q := newQueue([]Lane{{"a", 1, 100}})
	open1, open2, undialed := newWaiter(), newWaiter(), newWaiter()
	one(q, &open1)
	one(q, &open2)
	q.demand(&undialed)
	if _, err := q.push(t.Context(), 0, requests(1)); err != nil {
		t.Fatal(err)
	}
	woken := func(s waiter) bool {
		select {
		case <-s.wake:
			return true
		default:
			return false
		}
	}
	if !woken(open1) || woken(open2) || woken(undialed) {
		t.Error("one request must wake one open connection")
	}
	q.pass(&open1) // its limit was lowered meanwhile
	if !woken(open2) {
		t.Error("the request would have waited beside a free connection")
	}
	q.pass(&open2)
	if !woken(undialed) {
		t.Error("no open connection is free: another one must be dialed")
	}
}

// Removing one from the middle leaves the others unchanged, wherever the ring
// begins.
func TestQueueRemovesFromAnywhere(t *testing.T) {
	for at := range 10 {
		q := newQueue([]Lane{{"a", 1, 20}})
		s := newWaiter()
		rs := requests(22)
		for _, r := range rs[:12] { // so that the rest wraps around the ring's end
			if _, err := q.push(t.Context(), 0, []*Request{r}); err != nil {
				t.Fatal(err)
			}
			one(q, &s)
		}
		rs = rs[12:]
		if _, err := q.push(t.Context(), 0, rs); err != nil {
			t.Fatal(err)
		}
		if !q.remove(rs[at]) || q.remove(rs[at]) || q.len() != 9 {
			t.Errorf("the %d-th is not removed once: %d are left", at, q.len())
		}
		for i, r := range rs {
			if i == at {
				continue
			}
			if one(q, &s) != r {
				t.Errorf("without the %d-th, the %d-th is another one", at, i)
			}
		}
		if one(q, &s) != nil || q.len() != 0 {
			t.Errorf("without the %d-th, %d are left", at, q.len())
		}
	}
}
