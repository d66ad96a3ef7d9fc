package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/pushfleet/pushfleet/push"
)

// waitingFor makes n deliveries of one partition, named "a0", "a1" and so on.
func waitingFor(partition string, n int) []*Delivery {
	t := NewTracker(TrackerOptions{Partition: push.Partition{Topic: partition}, Capacity: n})
	b := &Batch{Tracker: t, Items: make([]Item, n)}
	ds := make([]*Delivery, n)
	for i := range ds {
		b.Items[i].batch = b
		ds[i] = &Delivery{Item: &b.Items[i], Device: Device{Hash: fmt.Sprint(partition, i)}}
	}
	return ds
}

// take admits a batch and takes it in, as poll does.
func (p *Pipeline) take(b *Batch) {
	b.Tracker.Admit(b)
	p.assigned.add(b.Tracker)
}

func hashes(ds []*Delivery) string {
	var all []string
	for _, d := range ds {
		all = append(all, d.Device.Hash)
	}
	return strings.Join(all, " ")
}

// Stages work on several batches of a partition at once, and may be through with a
// later one first.
func TestBatchesAreSentInTheOrderOfTheLog(t *testing.T) {
	l := &line{waiting: newTurns(false)}
	batch := func(name string, offset int64) []*Delivery {
		ds := waitingFor("p", 2)
		for i, d := range ds {
			d.Device.Hash, d.Item.Offset = fmt.Sprint(name, i), offset+int64(i)
		}
		return ds
	}
	second := batch("second", 10)
	slices.Reverse(second) // by the bucket of their rows
	l.waiting.put(l, batch("third", 20))
	l.waiting.put(l, second)
	l.waiting.put(l, batch("fourth", 30))
	l.waiting.put(l, batch("first", 0))
	if got, want := hashes(l.waiting.take(nil, 10)), "first0 first1 second1 second0 third0 third1 fourth0 fourth1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTurns(t *testing.T) {
	l := &line{waiting: newTurns(false)}
	q := l.waiting
	var group []*Delivery
	take := func(why string, limit int, want string) {
		t.Helper()
		if next := hashes(q.next(group, limit)); next != want {
			t.Errorf("%s: got next %q, want %q", why, next, want)
		}
		if group = q.take(group, limit); hashes(group) != want {
			t.Errorf("%s: got %q, want %q", why, hashes(group), want)
		}
	}
	a := waitingFor("a", 7)
	q.put(l, a[:5])
	q.put(l, waitingFor("b", 1))
	take("the first that came", 2, "a0 a1")
	q.put(l, waitingFor("c", 3))
	take("one turn each, and room that is left is the next one's", 2, "b0 a2")
	q.put(l, a[5:])
	take("who came last has a turn before the first is through", 2, "c0 c1")
	back := slices.Clone(group)
	take("in order behind what was put before", 2, "a3 a4")
	if !q.putBack(back[0].share, back) {
		t.Error("putBack refused open deliveries")
	}
	take("what was put back is ahead of its partition's others, and of nobody else's", 2, "c0 c1")
	take("all", 9, "a5 a6 c2")

	if p := q.progress()[push.Partition{Topic: "a"}]; p.Out != 7 || p.Completed != 0 {
		t.Errorf("progress of a: got %+v, want 7 out", p)
	}
	a[0].share.completed.Add(3)
	if p := q.progress()[push.Partition{Topic: "a"}]; p.Out != 4 || p.Completed != 3 {
		t.Errorf("progress of a: got %+v, want 4 out and 3 completed", p)
	}

	q.put(l, a[:2])
	q.put(l, waitingFor("b", 3))
	gone := q.remove(func(d *Delivery) bool { return d.Device.Hash[0] == 'a' || d.Device.Hash == "b1" })
	if hashes(gone) != "a0 a1 b1" {
		t.Errorf("got removed %q, want a0 a1 b1", hashes(gone))
	}
	if ps := q.partitions([]push.Partition{{Topic: "a"}}); !slices.Equal(ps, []push.Partition{{Topic: "a"}, {Topic: "b"}}) {
		t.Errorf("got waiting partitions %v, want a and b", ps)
	}
	q.close()
	if q.putBack(back[0].share, back) || !q.isClosed() {
		t.Error("putBack succeeded after close")
	}
	if !q.await() {
		t.Error("await reports nothing although two deliveries wait after close")
	}
	take("without what was removed, also after the end", 9, "b0 b2")
	if take("closed and empty", 9, ""); q.await() {
		t.Error("await reports deliveries in a closed, empty line")
	}
}

// Nothing is lost, none is given twice and each partition keeps its order,
// whatever groups come and are taken.
func TestTurnsKeepTheOrderOfAPartition(t *testing.T) {
	l := &line{waiting: newTurns(false)}
	const each = 1000
	go func() {
		all := map[string][]*Delivery{"a": waitingFor("a", each), "b": waitingFor("b", each), "c": waitingFor("c", each)}
		for from := 0; from < each; from += 50 {
			for _, ds := range all {
				l.waiting.put(l, ds[from:from+50])
			}
		}
		l.waiting.close()
	}()
	next := map[byte]int{}
	for i := 0; l.waiting.await(); i++ {
		for _, d := range l.waiting.take(nil, 1+i%70) {
			p := d.Device.Hash[0]
			if want := fmt.Sprintf("%c%d", p, next[p]); d.Device.Hash != want {
				t.Fatalf("got %s, want %s", d.Device.Hash, want)
			}
			next[p]++
		}
	}
	for _, p := range "abc" {
		if next[byte(p)] != each {
			t.Errorf("%d of %d of %c", next[byte(p)], each, p)
		}
	}
}

// What one worker leaves in a queue is another's: it does not wait for the next that comes.
func TestTheRestIsAnotherTakers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int]()
		var taking sync.WaitGroup
		var took atomic.Int32
		for range 3 {
			taking.Go(func() { took.Add(int32(len(q.take(nil, 2)))) })
		}
		synctest.Wait() // all of them wait
		q.put(1, 2, 3, 4, 5)
		synctest.Wait()
		if n := took.Load(); n != 5 {
			t.Errorf("%d of 5 values were taken by 3 that may take 2 each", n)
		}
		q.close()
		taking.Wait()
	})
}
