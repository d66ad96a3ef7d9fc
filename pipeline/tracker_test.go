package pipeline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/push"
)

// naiveTracker is the tracker's promise written the slow way: a list of all
// that was ever admitted.
type naiveTracker struct {
	capacity, confirms int
	unseen             int64 // -1 = not told
	retry              bool
	all                []naiveRecord
	committed          int // of all, as the tracker was told
	draining, revoked  bool
}

type naiveRecord struct {
	offset   int64
	id, user string
	dead     bool // could not be decoded: holds no id
	copyOf   bool // a second copy: holds no id either
	done     bool
	gone     bool // abandoned
}

func (n *naiveTracker) holder(id string) *naiveRecord {
	for i := range n.all {
		r := &n.all[i]
		if r.id == id && !r.done && !r.dead && !r.copyOf {
			return r
		}
	}
	return nil
}

func (n *naiveTracker) closed() int {
	for i := range n.all {
		if !n.all[i].done {
			return i
		}
	}
	return len(n.all)
}

func (n *naiveTracker) watermark() (int64, bool) {
	c := n.closed()
	if c == 0 {
		return -1, false
	}
	return n.all[c-1].offset + 1, !n.revoked
}

func (n *naiveTracker) active() (k int) {
	for _, r := range n.all {
		if !r.done && !r.gone {
			k++
		}
	}
	return k
}

// verdictOf is what admitting the next record must decide; wait = the tracker
// of a retry topic does not take it yet.
func (n *naiveTracker) verdictOf(it *Item) (v push.Verdict, reason push.Reason, wait bool) {
	h := n.holder(it.ID)
	switch {
	case it.Verdict == push.Dead:
		return push.Dead, it.Reason, false
	case it.ID == "" || h == nil:
		return push.Undecided, "", false
	case n.retry:
		return push.Undecided, "", true
	case h.user != it.UserID:
		return push.Dead, push.IDReused, false
	}
	return push.Duplicate, "", false
}

func TestTrackerKeepsItsPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := &naiveTracker{
			capacity: rapid.IntRange(1, 30).Draw(t, "capacity"),
			confirms: rapid.IntRange(0, 10).Draw(t, "confirms"),
			unseen:   -1,
			retry:    rapid.Bool().Draw(t, "retry"),
		}
		tr := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push", ID: 1}, Capacity: model.capacity, Confirms: model.confirms, Retry: model.retry})
		var items []*Item // by position in model.all
		next := rapid.Int64Range(0, 1000).Draw(t, "first offset")
		highest := int64(-1)
		out := func() (open []int) {
			for i, r := range model.all {
				if !r.done && !r.gone {
					open = append(open, i)
				}
			}
			return open
		}

		t.Repeat(map[string]func(*rapid.T){
			"admit": func(t *rapid.T) {
				if model.draining {
					t.Skip("the caller has stopped admitting")
				}
				b := &Batch{}
				for range rapid.IntRange(1, 8).Draw(t, "records") {
					it := Item{Offset: next}
					it.ID = rapid.SampledFrom([]string{"", "a", "b", "c", "d"}).Draw(t, "id")
					it.UserID = rapid.SampledFrom([]string{"u", "u", "u", "v"}).Draw(t, "user")
					if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
						it.Decide(push.Dead, push.BadJSON, "")
					}
					b.Items = append(b.Items, it)
					next += 1 + int64(rapid.IntRange(0, 3).Draw(t, "gap"))
				}
				want := make([]Item, len(b.Items))
				copy(want, b.Items)
				took := tr.Admit(b)
				for i := range want {
					v, reason, wait := model.verdictOf(&want[i])
					if wait {
						if took != i {
							t.Fatalf("took %d, want %d: the next one is a copy of an open id in a retry topic", took, i)
						}
						next = want[i].Offset // it and those behind come again
						return
					}
					if i >= took {
						t.Fatalf("took %d of %d", took, len(want))
					}
					it := &b.Items[i]
					if it.Verdict != v || it.Reason != reason {
						t.Fatalf("item %d: got %v %q, want %v %q", i, it.Verdict, it.Reason, v, reason)
					}
					former := len(model.all) < model.confirms && (model.unseen < 0 || it.Offset < model.unseen)
					if confirm := model.retry || former; it.Confirm != confirm {
						t.Fatalf("record %d of the assignment: got confirm %v, want %v", len(model.all), it.Confirm, confirm)
					}
					model.all = append(model.all, naiveRecord{offset: it.Offset, id: it.ID, user: it.UserID, dead: v == push.Dead, copyOf: v == push.Duplicate})
					items = append(items, it)
				}
			},
			"unseen": func(t *rapid.T) {
				model.unseen = rapid.Int64Range(max(0, next-10), next+10).Draw(t, "from")
				tr.Unseen(model.unseen)
			},
			"done": func(t *rapid.T) {
				open := out()
				if len(open) == 0 {
					t.Skip("nothing is in flight")
				}
				var group []*Item
				for _, i := range rapid.SliceOfNDistinct(rapid.SampledFrom(open), 1, min(5, len(open)), rapid.ID[int]).Draw(t, "which") {
					model.all[i].done = true
					group = append(group, items[i])
				}
				if soon, want := tr.Done(group), 4*(model.closed()-model.committed) > model.capacity; soon && !want || !soon && model.closed()-model.committed > model.capacity/4 {
					t.Fatalf("got commit soon %v with %d of %d done and not committed", soon, model.closed()-model.committed, model.capacity)
				}
			},
			"commit": func(t *rapid.T) {
				upTo, ok := tr.Watermark()
				if !ok {
					t.Skip("nothing to commit")
				}
				if rapid.Bool().Draw(t, "of an older watermark") {
					upTo = rapid.Int64Range(0, upTo).Draw(t, "offset")
				}
				for model.committed < model.closed() && model.all[model.committed].offset < upTo {
					model.committed++
				}
				tr.Committed(upTo)
			},
			"abandon": func(t *rapid.T) {
				open := out()
				if len(open) == 0 {
					t.Skip("nothing is in flight")
				}
				i := rapid.SampledFrom(open).Draw(t, "which")
				model.all[i].gone = true
				tr.Abandon(items[i : i+1])
			},
			"drain": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "rarely") > 0 {
					t.Skip("not now")
				}
				model.draining = true
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				if err := tr.Drain(ended); (err == nil) != (model.active() == 0) {
					t.Fatalf("drain with %d in flight: %v", model.active(), err)
				}
			},
			"fence": func(t *rapid.T) {
				if rapid.IntRange(0, 20).Draw(t, "rarely") > 0 {
					t.Skip("not now")
				}
				model.draining, model.revoked = true, true
				tr.Fence()
			},
			"": func(t *rapid.T) {
				want, ok := model.watermark()
				if got, gotOK := tr.Watermark(); got != want || gotOK != ok {
					t.Fatalf("got watermark %d %v, want %d %v", got, gotOK, want, ok)
				}
				if want < highest {
					t.Fatalf("watermark went back from %d to %d", highest, want)
				}
				highest = want
				open := len(model.all) - model.closed()
				// The next owner starts at the committed offset.
				held := len(model.all) - model.committed
				if tr.Open() != open || tr.Uncommitted() != held || tr.Free() != model.capacity-held {
					t.Fatalf("got open %d, uncommitted %d, free %d; want %d, %d, %d", tr.Open(), tr.Uncommitted(), tr.Free(), open, held, model.capacity-held)
				}
				after, waits := int64(0), int64(0)
				for _, r := range model.all {
					after = r.offset + 1
					if !r.done && !r.gone && !r.dead && !r.copyOf {
						waits++
					}
				}
				beyond := int64(7)
				if len(model.all) == 0 {
					beyond = 0 // where it begins is not known
				}
				if got := tr.Backlog(after + 7); tr.Waiting() != waits || got != waits+beyond || tr.Backlog(after-1) != waits {
					t.Fatalf("got %d waiting and a backlog of %d, want %d and %d", tr.Waiting(), got, waits, waits+beyond)
				}
				if tr.Draining() != model.draining {
					t.Fatalf("got draining %v, want %v", tr.Draining(), model.draining)
				}
			},
		})
	})
}

func TestDrainWaitsForWhatIsInFlight(t *testing.T) {
	tr := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push", ID: 0}, Capacity: 10})
	b := &Batch{Items: make([]Item, 2)}
	for i := range b.Items {
		b.Items[i].ID = fmt.Sprint(i)
	}
	tr.Admit(b)
	drained := make(chan error, 1)
	go func() { drained <- tr.Drain(context.Background()) }()
	tr.Done([]*Item{&b.Items[1]})
	select {
	case err := <-drained:
		t.Fatalf("Drain returned with one item in flight: %v", err)
	default:
	}
	tr.Abandon([]*Item{&b.Items[0]})
	select {
	case err := <-drained:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Drain did not return although one item is done and the other abandoned")
	}
	if _, ok := tr.Watermark(); ok {
		t.Error("the abandoned record does not hold the watermark")
	}
}

// What is intended lets its offset pass, and stays in flight until it has its result:
// until then it is unresolved, and its id open. A copy in a retry topic waits no longer.
func TestIntendedRecordsStayOpenUntilTheyAreDone(t *testing.T) {
	tr := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10, Retry: true})
	admits := func(offset int64, id string) *Item {
		b := &Batch{Tracker: tr, Items: []Item{{Offset: offset, Message: push.Message{ID: id, UserID: "u"}}}}
		if tr.Admit(b) == 0 {
			return nil
		}
		return &b.Items[0]
	}
	first, second := admits(5, "a"), admits(6, "b")
	tr.Intend([]*Item{first, second})
	if next, _ := tr.Watermark(); next != 7 {
		t.Errorf("the watermark is %d, want 7: intents are durable", next)
	}
	tr.Committed(7)
	if admits(7, "a") != nil {
		t.Error("a copy is admitted while the first is in flight")
	}
	if from, open := tr.Unresolved(); !open || from != 5 {
		t.Errorf("unresolved from %d, %t; want 5", from, open)
	}
	tr.Done([]*Item{first})
	if from, open := tr.Unresolved(); !open || from != 6 {
		t.Errorf("unresolved from %d, %t; want 6", from, open)
	}
	if admits(7, "a") == nil {
		t.Error("a copy is not admitted, although the first has ended: the partition stands still")
	}
	tr.Abandon([]*Item{second})
	if from, open := tr.Unresolved(); !open || from != 6 {
		t.Errorf("unresolved from %d, %t; want 6, which was given back", from, open)
	}
}

// Confirms are of what a dead owner may have sent: what lies below the committed offset
// and is read again is none of it.
func TestWhatIsReadAgainUsesUpNoConfirms(t *testing.T) {
	tr := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10, Confirms: 1})
	b := &Batch{Tracker: tr, Items: []Item{{Offset: 1, Reread: true}, {Offset: 2, Reread: true}, {Offset: 3}, {Offset: 4}}}
	tr.Admit(b)
	if !b.Items[2].Confirm || b.Items[3].Confirm {
		t.Errorf("after what is read again, confirms are %t and %t, want one", b.Items[2].Confirm, b.Items[3].Confirm)
	}
}

// What is committed is forgotten, and not only passed: an id that stays in the
// tracker's memory keeps the record that it was read from.
func TestCommittedIDsAreForgotten(t *testing.T) {
	tracker := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10})
	b := &Batch{Tracker: tracker, Items: make([]Item, 2)}
	for i := range b.Items {
		b.Items[i].ID, b.Items[i].Offset = fmt.Sprint("id-", i), int64(i)
	}
	tracker.Admit(b)
	before := tracker.records
	tracker.Done([]*Item{&b.Items[0]})
	tracker.Committed(1)
	if before[0].id != "" || before[1].id != "id-1" {
		t.Errorf("got ids %q and %q, want only that which is open", before[0].id, before[1].id)
	}
}

// When the partition began to leave is known by the monotonic clock too: the clock on the
// wall may be set meanwhile, and what is committed would be given back at once, or never.
func TestLeavingGoesByAClockThatNobodySets(t *testing.T) {
	tr := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10})
	if left := tr.Left(); left != nil || tr.Draining() {
		t.Errorf("left at %v before it leaves", left)
	}
	tr.Leave()
	left := tr.Left()
	if left == nil || left.String() == left.Round(0).String() { // Round(0) takes the monotonic reading away
		t.Fatalf("left at %v, which is no monotonic time", left)
	}
	tr.Leave()
	if again := tr.Left(); again != left || !tr.Draining() {
		t.Errorf("left at %v, and told again at %v", left, again)
	}
}
