package worker

import (
	"context"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
)

// told is a producer that keeps what it is given.
type told []pipeline.Handover

func (p *told) Produce(_ context.Context, hs []pipeline.Handover) error {
	*p = append(*p, hs...)
	return nil
}

// All ranges of a lane have its key, or readers would find them in any order.
func TestRangesOfALaneHaveItsKey(t *testing.T) {
	var p told
	if err := produceRanges("critical.retry", &p)(t.Context(), [][]byte{[]byte("a"), []byte("b")}); err != nil {
		t.Fatal(err)
	}
	if len(p) != 2 {
		t.Fatalf("%d records", len(p))
	}
	for i, h := range p {
		if h.To != pipeline.ToEvents || string(h.EventKey) != "critical.retry" || string(h.Event) != []string{"a", "b"}[i] {
			t.Errorf("%+v", h)
		}
	}
}
