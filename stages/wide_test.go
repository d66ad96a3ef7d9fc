package stages_test

import (
	"fmt"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

// BenchmarkRetryOfManyDevices makes the deliveries of a retry that names each of a user's
// devices.
func BenchmarkRetryOfManyDevices(b *testing.B) {
	for _, n := range []int{1, 10, 20_000} {
		u := &push.User{Devices: make([]push.Device, n)}
		names := make([]string, n)
		for i := range names {
			names[i] = fmt.Sprintf("%016x", i)
			u.Devices[i] = push.Device{Platform: push.APNS, App: "shop", Token: "t", Hash: names[i], RegisteredAt: hour}
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				batch := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) { it.User, it.Attempt, it.Devices = u, 1, names })}}
				if err := (&stages.Devices{}).Apply(b.Context(), batch); err != nil || len(batch.Items[0].Deliveries) != n {
					b.Fatal(err, len(batch.Items[0].Deliveries))
				}
			}
		})
	}
}

// However many devices a retry names, one that the user has no more ends by itself, and so
// does one that is of another app only.
func TestARetryNamesDevicesThatAreGone(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 50} {
		u := &push.User{Devices: []push.Device{{Platform: push.APNS, App: "bank", Hash: "other", RegisteredAt: hour}}}
		names := []string{"gone", "other"}
		for i := range n {
			names = append(names, fmt.Sprint("d", i))
			u.Devices = append(u.Devices, push.Device{Platform: push.APNS, App: "shop", Hash: names[i+2], RegisteredAt: hour})
		}
		b := &pipeline.Batch{Items: []pipeline.Item{item("n", func(it *pipeline.Item) { it.User, it.Attempt, it.Devices = u, 1, names })}}
		if err := (&stages.Devices{}).Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		ds := b.Items[0].Deliveries
		if len(ds) != n+2 {
			t.Fatalf("%d devices: %d deliveries", n, len(ds))
		}
		for i, d := range ds {
			if gone := d.Reason == push.TokenGone; d.Device.Hash != names[i] || gone != (i < 2) {
				t.Errorf("%d devices: %s is gone: %t", n, d.Device.Hash, gone)
			}
		}
	}
}
