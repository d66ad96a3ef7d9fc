package pipeline

import (
	"slices"
	"sync"
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// A former owner can have sent none of the records that came after it: only those before
// are confirmed, and of them as many as it may have had open.
func TestWhatNoFormerOwnerHasReadIsNotConfirmed(t *testing.T) {
	for _, test := range []struct {
		name             string
		retry            bool
		unseen, confirms int
		want             []int64 // the offsets of 1 to 6 that are confirmed
	}{
		{"not known", false, -1, 3, []int64{1, 2, 3}},
		{"the log's end is within a former owner's window", false, 3, 4, []int64{1, 2}},
		{"it is behind it", false, 5, 2, []int64{1, 2}},
		{"nothing was there", false, 0, 4, nil},
		{"of a retry topic all are", true, 0, 4, []int64{1, 2, 3, 4, 5, 6}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tr := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 10, Confirms: test.confirms, Retry: test.retry})
			if test.unseen >= 0 {
				tr.Unseen(int64(test.unseen))
			}
			b := &Batch{Tracker: tr, Items: []Item{{Offset: 1}, {Offset: 2}, {Offset: 3}, {Offset: 4}, {Offset: 5}, {Offset: 6}, {Offset: 7, Confirm: true}}}
			tr.Admit(b)
			if own := b.Items[6].Confirm; !own {
				t.Error("a record that is to be confirmed for another reason is not")
			}
			b.Items = b.Items[:6]
			var got []int64
			for i := range b.Items {
				if b.Items[i].Confirm {
					got = append(got, b.Items[i].Offset)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("confirms offsets %v, want %v", got, test.want)
			}
		})
	}
}

// The log's end is told while batches are admitted, by another goroutine.
func TestFormerOwnersAreOutlastedWhileRecordsCome(t *testing.T) {
	const unseen, records = 50, 100
	tr := NewTracker(TrackerOptions{Partition: push.Partition{Topic: "push"}, Capacity: 2 * records, Confirms: 2 * records})
	var told sync.WaitGroup
	told.Go(func() { tr.Unseen(unseen) })
	for offset := range int64(records) {
		b := &Batch{Tracker: tr, Items: []Item{{Offset: offset}}}
		tr.Admit(b)
		if offset < unseen && !b.Items[0].Confirm {
			t.Errorf("offset %d, which a former owner may have read, is not confirmed", offset)
		}
	}
	told.Wait()
	b := &Batch{Tracker: tr, Items: []Item{{Offset: records}}}
	if tr.Admit(b); b.Items[0].Confirm {
		t.Error("a record that came later is confirmed")
	}
}
