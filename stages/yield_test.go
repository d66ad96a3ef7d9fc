package stages_test

import (
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/yieldtest"
	"github.com/pushfleet/pushfleet/stages"
)

// A one-time password does not wait until a stage has gone through a whole batch.
func TestStagesYield(t *testing.T) {
	const n = 10_000
	user := &push.User{Devices: []push.Device{{Platform: push.APNS, App: "shop", Token: "aa", Hash: "d1", RegisteredAt: hour}}}
	for name, stage := range map[string]pipeline.Stage{"accept": &stages.Accept{}, "devices": &stages.Devices{}} {
		t.Run(name, func(t *testing.T) {
			b := &pipeline.Batch{}
			for range n {
				b.Items = append(b.Items, item("n", func(it *pipeline.Item) { it.User = user }))
			}
			yieldtest.Often(t, n, func() {
				if err := stage.Apply(t.Context(), b); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
