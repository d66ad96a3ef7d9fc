package pipeline_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// telling runs a pipeline over a world whose batches may come later. do is called while it
// runs.
func telling(t *testing.T, w *world, do func()) {
	t.Helper()
	w.feed = make(chan struct{})
	p, pr := w.pipeline(t, 300)
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = p.Run(ctx) })
	do()
	stop()
	run.Wait()
	pr.out.Wait()
	if len(w.early) > 0 {
		t.Errorf("committed too early: %v", w.early)
	}
}

// more has another partition come.
func (w *world) more(part int32, n int) {
	w.mu.Lock()
	w.fillPartition(part, n)
	w.mu.Unlock()
	for range n / 100 {
		w.feed <- struct{}{}
	}
}

// fate checks that what has ended of a partition was told, or buried if its sender is that
// one, once.
func (w *world) fate(t *testing.T, part int32, buriedOf string) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.trackers[part].Open(); n > 0 {
		t.Errorf("%d of partition %d are open", n, part)
	}
	some := 0
	for _, id := range w.ids[part] {
		told, buried, sender := len(w.told[id]), w.buried[id], w.sender[id]
		wantTold, wantBuried := 0, 0
		if w.finals(id) > 0 && buriedOf != "" && sender == buriedOf {
			wantBuried = 1
			some++
		} else if w.finals(id) > 0 && isTold(sender) {
			wantTold = 1
		}
		if told != wantTold || len(buried) != wantBuried {
			t.Errorf("%s of %q told %d times, buried as %q", id, sender, told, buried)
		}
		for _, b := range buried {
			if !strings.HasPrefix(b, sender+" "+id) || !strings.HasSuffix(b, ": unknown topic") {
				t.Errorf("buried as %q", b)
			}
		}
	}
	if buriedOf != "" && some < 10 {
		t.Errorf("%d are buried", some)
	}
}

// allBuried is how many ends are buried.
func (w *world) allBuried() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.buried {
		n += len(b)
	}
	return n
}

// A sender's topic that takes nothing holds the commit back for a minute. From then on its
// ends are dead letters, at once, until it takes them again.
func TestATopicThatTakesNothingStallsNobodyForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 100)
		w.awayFor = "orders"
		telling(t, w, func() {
			time.Sleep(58 * time.Second)
			if n := w.allBuried(); n > 0 {
				t.Errorf("%d are buried after less than a minute", n)
			}
			time.Sleep(10 * time.Second)
			w.fate(t, 0, "orders")
			w.more(1, 100)
			time.Sleep(5 * time.Second)
			w.fate(t, 1, "orders")
			if n, of := counted(t, w.registry, "push_ends_dead_letters_total", "orders"), w.allBuried(); int(n) != of {
				t.Errorf("counted %v of %d", n, of)
			}
			w.mu.Lock()
			w.awayFor = ""
			w.mu.Unlock()
			time.Sleep(10 * time.Second)
			w.more(2, 100)
			time.Sleep(5 * time.Second)
			w.fate(t, 2, "")
			w.mu.Lock()
			if n := w.commits[2]; n != 199 {
				t.Errorf("committed up to %d", n)
			}
			w.awayFor = "orders" // a new trouble gets a minute of its own
			w.mu.Unlock()
			before := w.allBuried()
			w.more(3, 100)
			time.Sleep(30 * time.Second)
			w.mu.Lock()
			w.awayFor = ""
			w.mu.Unlock()
			time.Sleep(5 * time.Second)
			w.fate(t, 3, "")
			if n := w.allBuried(); n != before {
				t.Errorf("%d more are buried after half a minute", n-before)
			}
		})
	})
}

// Kafka that takes nothing at all is waited for, and then everything is told.
func TestKafkaThatTakesNothingIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 100)
		w.allAway = true
		telling(t, w, func() {
			time.Sleep(5 * time.Minute)
			w.mu.Lock()
			if w.commits[0] > 0 {
				t.Errorf("committed up to %d", w.commits[0])
			}
			w.allAway = false
			w.mu.Unlock()
			time.Sleep(5 * time.Second)
			w.fate(t, 0, "")
		})
	})
}

// If Kafka comes back between a topic's turn and that of the dead letters, one end is a dead
// letter, of however many there are to tell.
func TestOneEndIsBuriedToSeeWhatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := calm(3, 1, 100)
		w.allAway = true
		telling(t, w, func() {
			time.Sleep(30 * time.Second) // all that there is to tell gathers behind the first
			w.mu.Lock()
			w.allAway, w.breaks, w.mends = false, true, true
			w.mu.Unlock()
			time.Sleep(2 * time.Minute)
			if n := w.allBuried(); n != 1 {
				t.Errorf("%d are buried, want 1", n)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, id := range w.ids[0] {
				if isTold(w.sender[id]) && w.finals(id) > 0 && len(w.told[id])+len(w.buried[id]) != 1 {
					t.Errorf("%s of %q told %d times, buried %d times", id, w.sender[id], len(w.told[id]), len(w.buried[id]))
				}
			}
		})
	})
}

// The topic and the dead letters fail by turns: whatever is taken is taken once, and nothing
// is committed that neither has.
func TestEndsAreToldOrBuriedWhateverFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(11)
		w.fill(2, 400)
		w.awayFor = "orders"
		telling(t, w, func() {
			w.wait(t)
			if n := w.allBuried(); n < 50 {
				t.Errorf("%d are buried", n)
			}
			for _, part := range []int32{0, 1} {
				for _, id := range w.ids[part] {
					if isTold(w.sender[id]) && w.finals(id) > 0 && len(w.told[id])+len(w.buried[id]) == 0 {
						t.Errorf("%s of %q is lost", id, w.sender[id])
					}
					if slices.Contains(w.early, id) {
						t.Errorf("%s was committed too early", id)
					}
				}
			}
		})
	})
}
