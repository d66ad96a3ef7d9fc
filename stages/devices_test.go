package stages_test

import (
	"slices"
	"strconv"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// However many devices a user has for the app, and wherever others stand among
// them, each of them is sent to once; so is each that a retry names.
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
		// Items in one batch share the memory of its deliveries.
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
					t.Errorf("%s of %d devices: %s has verdict %v, item %s", it.ID, n, d.Device.Hash, d.Verdict, d.Item.ID)
				}
				got = append(got, d.Device.Hash)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s of %d devices is sent to %v, want %v", it.ID, n, got, want)
			}
		}
	}
}
