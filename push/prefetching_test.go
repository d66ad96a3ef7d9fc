package push_test

import (
	"slices"
	"testing"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/push/yieldtest"
)

// sizes are numbers of steps: none, one, and all around the end of a stretch.
var sizes = []int{-1, 0, 1, push.Stretch - 1, push.Stretch, push.Stretch + 1, 3*push.Stretch + 7}

// event is a step, or a read for one.
type event struct {
	read bool
	i    int
}

// inOrder is what a loop over n steps does: the reads of a stretch, then its steps.
func inOrder(n int) (all []event) {
	for from := 0; from < n; from += push.Stretch {
		for _, read := range []bool{true, false} {
			for i := from; i < min(from+push.Stretch, n); i++ {
				all = append(all, event{read, i})
			}
		}
	}
	return all
}

// Each step is read for once, before it and not before the stretch that precedes its own.
func TestPrefetchingReadsAStretchAhead(t *testing.T) {
	for _, n := range sizes {
		var got []event
		for i := range push.Prefetching(n, func(i int) byte { got = append(got, event{true, i}); return 1 }) {
			got = append(got, event{false, i})
		}
		if want := inOrder(n); !slices.Equal(got, want) {
			t.Errorf("%d steps: %v, want %v", n, got, want)
		}
	}
}

// A loop that breaks has no more steps, and no more is read for it.
func TestPrefetchingEndsWithItsLoop(t *testing.T) {
	reads, last := 0, 0
	for last = range push.Prefetching(1000, func(int) byte { reads++; return 0 }) {
		if last == push.Stretch+3 {
			break
		}
	}
	if last != push.Stretch+3 || reads != 2*push.Stretch {
		t.Errorf("went on to %d with %d reads, want %d with %d", last, reads, push.Stretch+3, 2*push.Stretch)
	}
}

// A loop that reads ahead lets others run as often as one that only yields.
func TestPrefetchingYields(t *testing.T) {
	yieldtest.Often(t, 10_000, func() {
		for range push.Prefetching(10_000, func(int) byte { return 0 }) {
		}
	})
}

func TestPrefetchReadsAStretchAhead(t *testing.T) {
	for _, n := range sizes {
		var got []event
		for i := range n {
			push.Prefetch(i, n, func(i int) byte { got = append(got, event{true, i}); return 1 })
			got = append(got, event{false, i})
		}
		if want := inOrder(n); !slices.Equal(got, want) {
			t.Errorf("%d steps: %v, want %v", n, got, want)
		}
	}
}

func TestPrefetchAllReadsEachOnce(t *testing.T) {
	var got []int
	push.PrefetchAll(3*push.Stretch, func(i int) byte { got = append(got, i); return 1 })
	for i := range 3 * push.Stretch {
		if got[i] != i {
			t.Fatalf("read %d is for step %d", i, got[i])
		}
	}
	if len(got) != 3*push.Stretch {
		t.Errorf("%d reads", len(got))
	}
}

func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		text string
		want byte
	}{{"", 0}, {"a", 2 * 'a'}, {"ab", 'a' + 'b'}, {"axxxb", 'a' + 'b'}} {
		if got := push.Ends(tt.text); got != tt.want {
			t.Errorf("%q: %d, want %d", tt.text, got, tt.want)
		}
		if got := push.Ends([]byte(tt.text)); got != tt.want {
			t.Errorf("%q as bytes: %d, want %d", tt.text, got, tt.want)
		}
	}
}

// What a loop costs that goes through more memory than any cache holds, by indexes in no
// order: a step of the first waits for its line, those of the second do not.
func BenchmarkLinesInNoOrder(b *testing.B) {
	const lines = 1 << 21 // of 64 bytes
	memory, order := make([][64]byte, lines), make([]uint32, lines)
	at := uint32(1)
	for i := range order { // a permutation: the multiplier is 1 modulo 4, what is added odd (Hull and Dobell)
		order[i], at = at, (at*1664525+1013904223)%lines
		memory[i][0] = byte(i)
	}
	// Each step needs the result of the one before, as where it decides what is done next.
	step := func(sum byte, i int) byte {
		return memory[(order[i]+uint32(sum&1))%lines][0]
	}
	b.Run("one after the other", func(b *testing.B) {
		var sum byte
		for n := 0; n < b.N; n += lines {
			for i := range push.Yielding(min(lines, b.N-n)) {
				sum = step(sum, i)
			}
		}
	})
	b.Run("read ahead", func(b *testing.B) {
		var sum byte
		read := func(i int) byte { return memory[order[i]][0] + memory[(order[i]+1)%lines][0] }
		for n := 0; n < b.N; n += lines {
			for i := range push.Prefetching(min(lines, b.N-n), read) {
				sum = step(sum, i)
			}
		}
	})
}
