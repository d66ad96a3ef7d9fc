package status

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// What is written in one column is read as it was.
func TestDetailsAreReadAsTheyWereWritten(t *testing.T) {
	for _, want := range []push.Row{
		{At: time.UnixMilli(1_790_000_000_123).UTC(), Platform: push.FCM, ProviderID: "projects/p/messages/1", Reason: "UNREGISTERED", UserHash: 1<<63 + 5, Place: 1<<63 + 6},
		{At: time.UnixMilli(-1).UTC(), Platform: push.APNS, ProviderID: strings.Repeat("p", maxProviderID), Reason: strings.Repeat("r", maxReason), Place: 1},
		{At: time.UnixMilli(0).UTC()}, // 1970, and nothing else
	} {
		d := newDetails()
		if err := d.UnmarshalCQL(nil, appendDetails(nil, &want)); err != nil {
			t.Errorf("%+v: %v", want, err)
		}
		got := push.Row{Platform: push.FCM, ProviderID: "of the row before", Reason: "too", Place: 7}
		if d.tell(&got); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// A row that was written in both formats says what the later write says, whichever
// that was: nothing of the other is mixed into it.
func TestOfTwoFormatsTheLaterWriteCounts(t *testing.T) {
	at := time.UnixMilli(1_790_000_000_000).UTC()
	one := push.Row{At: at, Platform: push.APNS, ProviderID: "p", Reason: "r", UserHash: 5, Place: 6}
	for _, tt := range []struct {
		why    string
		packed push.Row
		want   string // which of them
	}{
		{"columns later", push.Row{At: at.Add(-time.Millisecond), UserHash: 7}, "columns"},
		{"packed before 1970", push.Row{At: time.UnixMilli(-5).UTC(), UserHash: 7}, "alone"},
		{"packed later", push.Row{At: at.Add(time.Millisecond), UserHash: 7}, "packed"},
		{"at the same time", push.Row{At: at, UserHash: 7}, "packed"},
	} {
		cells := cellsOf(&one, false)
		cells[10] = appendDetails(nil, &tt.packed)
		want := tt.packed
		if tt.want == "alone" {
			copy(cells[4:10], []any{nil, nil, "", "", nil, nil})
		}
		if tt.want == "columns" {
			want = one
		}
		want.ID, want.State = "a", push.StateDelivered
		cells[0], cells[3] = "a", int8(push.StateDelivered)
		r := reading{found: make([][]push.Row, 1), first: map[string]int{"a": 0}}
		if err := r.collect([]string{"a"}, scanningCells(cells)); err != nil || len(r.found[0]) != 1 || r.found[0][0] != want {
			t.Errorf("%s: %+v, %v, want %+v", tt.why, r.found[0], err, want)
		}
	}
}

// Long texts are cut in either format, and so is what is no UTF-8: the server would refuse
// such a row every time.
func TestDetailsAreCut(t *testing.T) {
	row := push.Row{At: time.UnixMilli(1), ProviderID: strings.Repeat("p", maxProviderID+1), Reason: "gone\xff", UserHash: 1}
	d := newDetails()
	if err := d.UnmarshalCQL(nil, appendDetails(nil, &row)); err != nil || d.providerID != row.ProviderID[:maxProviderID] || d.reason != "gone" {
		t.Errorf("%d bytes and %q, %v", len(d.providerID), d.reason, err)
	}
}

// Rows of any formats behind each other are read as each is alone: the driver scans into the
// same memory, and nothing of one row may stay for the next.
func TestNothingOfARowStaysForTheNext(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "x", "yy"}
	row := func() push.Row {
		return push.Row{ID: "a", Device: texts[draw.IntN(3)], State: push.StateDelivered, Step: int16(draw.IntN(3)), At: time.UnixMilli(int64(draw.IntN(5) - 2)).UTC(),
			Platform: push.Platform(draw.IntN(3)), ProviderID: texts[draw.IntN(3)], Reason: texts[draw.IntN(3)], UserHash: uint64(draw.IntN(2)), Place: uint64(draw.IntN(2))}
	}
	cells := func() []any {
		inColumns, packed := row(), row()
		all := cellsOf(&inColumns, false)
		for _, optional := range []int{5, 9} {
			if draw.IntN(2) == 0 {
				all[optional] = nil
			}
		}
		switch draw.IntN(4) {
		case 1: // in both
			all[10] = appendDetails(nil, &packed)
		case 2:
			all[10] = appendDetails(nil, &packed)
			copy(all[4:10], []any{nil, nil, "", "", nil, nil})
		case 3: // of a stranger, without a time
			all[4] = nil
		}
		return all
	}
	read := func(rows ...[]any) []push.Row {
		r := reading{found: make([][]push.Row, 1), first: map[string]int{"a": 0}}
		if err := r.collect([]string{"a"}, scanningCells(rows...)); err != nil || len(r.found[0]) != len(rows) {
			t.Fatalf("%v: %+v, %v", rows, r.found[0], err)
		}
		return r.found[0]
	}
	for range 2000 {
		one, two := cells(), cells()
		if got := read(one, two); !reflect.DeepEqual(got, append(read(one), read(two)...)) {
			t.Fatalf("%v and %v are read as %+v", one, two, got)
		}
	}
}
