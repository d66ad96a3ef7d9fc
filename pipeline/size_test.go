package pipeline

import (
	"testing"
	"unsafe"

	"github.com/pushfleet/pushfleet/push"
)

// A worker is bound by its memory: there is an Item for each of up to 10,000 records of a
// batch and a Delivery for each of their devices, tens of thousands of both at a time, which
// all stages walk and each garbage collection scans. Who adds a field sees what it costs;
// often it fits into a gap, is seldom set and can be behind a pointer, or follows from
// another. With good reason the sizes here may grow.
func TestWhatThereAreManyOfIsSmall(t *testing.T) {
	for _, tt := range []struct {
		of       string
		is, most uintptr
	}{
		{"pipeline.Item", unsafe.Sizeof(Item{}), 832},
		{"its push.Message", unsafe.Sizeof(push.Message{}), 432},
		{"pipeline.Delivery", unsafe.Sizeof(Delivery{}), 312},
		{"its push.Result", unsafe.Sizeof(push.Result{}), 88},
		{"its Ending", unsafe.Sizeof(Ending{}), 32},
	} {
		if tt.is > tt.most {
			t.Errorf("%s: got %d bytes, want at most %d", tt.of, tt.is, tt.most)
		}
	}
	// The first cache line of an item is what decides whether a stage looks further.
	const line = 64
	if at := unsafe.Offsetof(Item{}.Deliveries) + unsafe.Sizeof(Item{}.Deliveries); at > line {
		t.Errorf("the deliveries of an item end at byte %d, want within the first %d", at, line)
	}
}
