package pipeline

import (
	"context"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// rowsOfAll is a ledger that has the same rows for each id.
type rowsOfAll struct {
	Ledger
	rows []push.Row
}

func (l rowsOfAll) Read(_ context.Context, ids []string) ([][]push.Row, error) {
	all := make([][]push.Row, len(ids))
	for i := range all {
		all[i] = l.rows
	}
	return all, nil
}

// A delivery whose confirm read is old is sent unless another record has its device by
// now. What failed is open again for a record that an operator sends once more.
func TestWhatAnotherRecordHasIsNotSent(t *testing.T) {
	const device = "d"
	row := func(device string, step int16, s push.State) push.Row {
		return push.Row{Device: device, Step: step, State: s, UserHash: push.UserHash("u")}
	}
	foreign := row(device, 0, push.StateDelivered)
	foreign.UserHash++
	for _, tt := range []struct {
		why     string
		row     push.Row
		hops    int // of the record that is to be sent, which went on behind step 0
		redrive int
		claimed bool
	}{
		{"nothing is known of it", row("other", 0, push.StateDelivered), 0, 0, false},
		{"of another user with the same id", foreign, 0, 0, false},
		{"delivered by its copy", row(device, 0, push.StateDelivered), 0, 0, true},
		{"handed over by its copy", row(device, 0, push.StateRetrying), 0, 0, true},
		{"failed", row(device, 0, push.StateFailed), 1, 0, true},
		{"failed, and sent once more", row(device, 0, push.StateFailed), 1, 1, false},
		{"delivered, and sent once more", row(device, 0, push.StateDelivered), 1, 1, true},
		{"put off as a whole by its copy", row("", 1, push.StateHeld), 0, 0, true},
		{"a dead letter as a whole", row("", 0, push.StateDeadLettered), 1, 0, true},
		{"a dead letter as a whole, and sent once more", row("", 0, push.StateDeadLettered), 1, 1, false},
	} {
		it := &Item{Message: push.Message{ID: "n", UserID: "u"}, Hops: tt.hops, Redrive: tt.redrive, Confirmed: UptimeAt(time.Now().Add(-time.Hour))}
		d := &Delivery{Item: it, Device: Device{Hash: device}}
		p := &Pipeline{confirmFor: time.Second, toSettle: newQueue[*Delivery](), opt: Options{Ledger: rowsOfAll{rows: []push.Row{tt.row}}}}
		open, err := p.confirmed(t.Context(), []*Delivery{d})
		if err != nil {
			t.Fatal(err)
		}
		settled := p.toSettle.remove(func(*Delivery) bool { return true })
		if claimed := len(settled) == 1 && d.Result.Class == push.Claimed; claimed != tt.claimed || len(open)+len(settled) != 1 {
			t.Errorf("%s: claimed %v, with %d open and result %v; want %v", tt.why, claimed, len(open), d.Result.Class, tt.claimed)
		}
	}
}

// A confirm read is good for as long as is said, and not longer.
func TestHowLongAConfirmIsGood(t *testing.T) {
	p, now := &Pipeline{confirmFor: 27 * time.Second}, time.Now()
	for _, tt := range []struct {
		why  string
		item Item
		old  bool
	}{
		{"never confirmed: it can have no copy", Item{}, false},
		{"to its last moment", Item{Confirmed: UptimeAt(now.Add(-27 * time.Second))}, false},
		{"beyond it", Item{Confirmed: UptimeAt(now.Add(-27*time.Second - 1))}, true},
		{"committed: it is ours", Item{Confirmed: UptimeAt(now.Add(-time.Hour)), committed: true}, false},
	} {
		it := tt.item
		if got := p.unconfirmed([]*Delivery{{Item: &it}, {Item: &it}}, now); len(got) > 1 || (len(got) == 1) != tt.old {
			t.Errorf("%s: %d items are to be confirmed, want it once: %v", tt.why, len(got), tt.old)
		}
	}
}

// What comes back unsent waits again, unless its line has ended or its partition leaves:
// then it is left to the next owner.
func TestWhatComesBackTooLateIsGivenBack(t *testing.T) {
	l := &line{waiting: newTurns(false)}
	ds := waitingFor("a", 2)
	l.waiting.put(l, ds)
	l.waiting.take(nil, 2)
	p := &Pipeline{}
	if stay := p.sendLater(ds, time.Now()); len(stay) != 0 || len(l.waiting.next(nil, 9)) != 2 {
		t.Errorf("%d stay, %d wait; want that both wait again", len(stay), len(l.waiting.next(nil, 9)))
	}
	l.waiting.take(nil, 2)
	givenBack := func(why string, ds []*Delivery) {
		t.Helper()
		stay := p.sendLater(ds, time.Now())
		if len(stay) != 2 || len(l.waiting.next(nil, 9)) != 0 {
			t.Fatalf("%s: %d of 2 stay", why, len(stay))
		}
		for _, d := range stay {
			if !d.abandoned {
				t.Errorf("%s: %s is not given back", why, d.Device.Hash)
			}
		}
	}
	leaves := waitingFor("b", 2)
	l.waiting.put(l, leaves)
	l.waiting.take(nil, 2)
	leaves[0].Item.batch.Tracker.Leave()
	givenBack("its partition leaves", leaves)
	l.waiting.close()
	givenBack("its line has ended", ds)
}
