package push_test

import (
	"slices"
	"testing"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/yieldtest"
)

// It ranges as range does, also over nothing and with a break.
func TestYieldingRanges(t *testing.T) {
	for _, n := range []int{-1, 0, 1, push.Stretch - 1, push.Stretch, push.Stretch + 1, 3*push.Stretch + 7} {
		var want, got []int
		for i := range n {
			want = append(want, i)
		}
		for i := range push.Yielding(n) {
			got = append(got, i)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: %v", n, got)
		}
	}
	last := 0
	for last = range push.Yielding(1000) {
		if last == push.Stretch+3 {
			break
		}
	}
	if last != push.Stretch+3 {
		t.Errorf("went on to %d", last)
	}
}

func TestYieldingYields(t *testing.T) {
	yieldtest.Often(t, 10_000, func() {
		for range push.Yielding(10_000) {
		}
	})
}
