package kafka

import (
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/yieldtest"
)

// A one-time password does not wait until a whole batch has been decoded.
func TestDecodingYields(t *testing.T) {
	const n = 10_000
	b := &pipeline.Batch{Items: make([]pipeline.Item, n)}
	decode := decoder(func([]byte, *push.Message) *push.Defect { return nil })
	yieldtest.Often(t, n, func() {
		if err := decode.Apply(t.Context(), b); err != nil {
			t.Error(err)
		}
	})
}
