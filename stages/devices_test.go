package stages_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// Each device of the user for the app is sent to exactly once, however many
// there are and wherever other apps' devices stand among them. So is each
// device that a retry names.
func TestEveryDeviceIsSentTo(t *testing.T) {
	for n := range 70 {
		var devices []push.Device
		var want []string
		for i := range n {
			d := push.Device{Platform: push.APNS, App: "shop", Token: "t" + strconv.Itoa(i), Hash: "d" + strconv.Itoa(i), RegisteredAt: hour}
			if i%5 == 4 {
				d.App = "bank"
			} else {
				want = append(want, d.Hash)
			}
			devices = append(devices, d)
		}
		user := &push.User{Devices: devices}
		// Items of one batch share the memory of its deliveries.
		b := &pipeline.Batch{Items: []pipeline.Item{
			item("new", func(it *pipeline.Item) { it.User = user }),
			item("retry", func(it *pipeline.Item) { it.User, it.Attempt, it.Devices = user, 1, want }),
			item("new too", func(it *pipeline.Item) { it.User = user }),
		}}
		if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		for i := range b.Items {
			it := &b.Items[i]
			var got []string
			for _, d := range it.Deliveries {
				if d.Item != it || d.Verdict != push.Undecided {
					t.Errorf("%s of %d devices: got verdict %[4]v for %[3]s, item %[5]s", it.ID, n, d.Device.Hash, d.Verdict, d.Item.ID)
				}
				got = append(got, d.Device.Hash)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s of %d devices: got %v, want %v", it.ID, n, got, want)
			}
		}
	}
}

// Each device is judged by its platform's channel. An unknown platform counts
// as another channel. If nothing is left to send, the notification ends as a
// whole, unless its devices have rows.
func TestOptOutsAreJudgedByDevice(t *testing.T) {
	phone := push.Device{Platform: push.APNS, App: "shop", Token: "aa", Hash: "d1", RegisteredAt: hour.Add(-time.Hour)}
	tablet := push.Device{Platform: push.FCM, App: "shop", Token: "bb", Hash: "d2", RegisteredAt: hour.Add(-time.Hour)}
	other := push.Device{Platform: 200, App: "shop", Token: "cc", Hash: "d3", RegisteredAt: hour.Add(-time.Hour)}
	delivered := func(it *pipeline.Item) {
		it.History = &push.History{Rows: []push.Row{row("n", "d1", 0, push.StateDelivered)}}
	}
	for _, tt := range []struct {
		why     string
		out     string
		devices []push.Device
		edit    func(*pipeline.Item)
		want    []string // "-d1" = ended as opted out
		end     push.Reason
	}{
		{why: "one of another channel is left", out: "push", devices: []push.Device{phone, other}, want: []string{"-d1", "d3"}},
		{why: "none is left", out: "push", devices: []push.Device{phone, tablet}, end: push.OptedOutChannel},
		{why: "no device at all", out: "push", end: push.NoDevice},
		{why: "another channel", out: "email", devices: []push.Device{phone, tablet}, want: []string{"d1", "d2"}},
		{why: "the first try had sent to another", out: "push", devices: []push.Device{phone, tablet}, edit: delivered, want: []string{"-d2"}},
		{why: "a retry names them", out: "push", devices: []push.Device{phone, other}, want: []string{"-d1", "d3"},
			edit: func(it *pipeline.Item) { it.Attempt, it.Devices = 1, []string{"d1", "d3"} }},
		{why: "a retry of one", out: "push", devices: []push.Device{phone, other}, end: push.OptedOutChannel,
			edit: func(it *pipeline.Item) { it.Attempt, it.Devices = 1, []string{"d1"} }},
		{why: "the one that the message names", out: "push", end: push.OptedOutChannel,
			edit: func(it *pipeline.Item) { it.Device = push.Target{Platform: push.FCM, Token: "zz"} }},
	} {
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) {
			it.User = &push.User{Devices: tt.devices, Preferences: push.Preferences{Channels: []string{tt.out}}}
			if tt.edit != nil {
				tt.edit(it)
			}
		})}}
		if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		var got []string
		it := &b.Items[0]
		for _, d := range it.Deliveries {
			switch {
			case d.Verdict == push.Undecided:
				got = append(got, d.Device.Hash)
			case d.Verdict == push.Suppressed && d.Reason == push.OptedOutChannel:
				got = append(got, "-"+d.Device.Hash)
			}
		}
		if !slices.Equal(got, tt.want) || it.Reason != tt.end || (it.Verdict == push.Suppressed) != (tt.end != "") || len(it.Deliveries) != len(got) {
			t.Errorf("%s: got %v, item %v %q; want %v %q", tt.why, got, it.Verdict, it.Reason, tt.want, tt.end)
		}
	}
}

// What was decided before its user was read has none, and is passed over.
func TestDevicesOfNoUser(t *testing.T) {
	user := &push.User{Devices: []push.Device{{Platform: push.APNS, App: "shop", Token: "t", Hash: "d"}}}
	b := &pipeline.Batch{Items: []pipeline.Item{
		item("copy", func(it *pipeline.Item) { it.User = nil; it.Decide(push.Duplicate, "", "") }),
		item("new", func(it *pipeline.Item) { it.User = user }),
	}}
	if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if copied, sent := len(b.Items[0].Deliveries), len(b.Items[1].Deliveries); copied != 0 || sent != 1 {
		t.Errorf("%d deliveries of the copy and %d of the other one, want 0 and 1", copied, sent)
	}
}
