package stages

import (
	"reflect"
	"testing"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/pipeline"
)

// What the next batch asks with is empty, or it would grow from batch to batch, and
// holds nothing of the items before: their tokens and their users' states.
func TestWhatIsAskedWithIsEmptyForTheNextBatch(t *testing.T) {
	it := &pipeline.Item{}
	a := asking{
		items: []*pipeline.Item{it}, slab: []limits.Request{{Owner: "ada", State: []byte{1}}},
		devices: make([]limits.Device, 1), names: []string{"plan/free"}, bypassed: 1, uncounted: 1,
	}
	a.reqs = []*limits.Request{&a.slab[0]}
	a.release()
	v := reflect.ValueOf(a)
	for i := range v.NumField() {
		name, f := v.Type().Field(i).Name, v.Field(i)
		if f.Kind() != reflect.Slice {
			if !f.IsZero() {
				t.Errorf("%s is %v", name, f)
			}
			continue
		}
		if f.Len() != 0 || f.Cap() != 1 {
			t.Errorf("%s has %d of room for %d, want 0 of 1", name, f.Len(), f.Cap())
		} else if kept := f.Slice(0, 1).Index(0); name != "reqs" && !kept.IsZero() { // reqs are of the slab
			t.Errorf("%s keeps %v", name, kept)
		}
	}
}
