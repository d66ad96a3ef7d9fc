package status

import (
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
		{"packed later", push.Row{At: at.Add(time.Millisecond), UserHash: 7}, "packed"},
		{"at the same time", push.Row{At: at, UserHash: 7}, "packed"},
	} {
		cells := cellsOf(&one, false)
		cells[10] = appendDetails(nil, &tt.packed)
		want := tt.packed
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
