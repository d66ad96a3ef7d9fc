package shards

import "iter"

// Groups orders the indexes of a batch by shard with a counting sort: no
// allocation per item, and none at all once its buffers have grown. The zero
// value is ready. It is not safe for concurrent use.
type Groups struct {
	order  []int32  // indexes, shard by shard, in each in batch order
	starts []int32  // order[starts[s]:starts[s+1]] are those of shard s
	shards []uint16 // shard of each index, plus one; 0 = left out
}

// Arrange groups the indexes 0 to n-1 by shard(i), which is called once per
// index and answers 0 to shards-1, or less than 0 for an index to leave out.
// shards is at most 65,535.
func (g *Groups) Arrange(n, shards int, shard func(i int) int) {
	g.starts = zeroed(g.starts, shards+1)
	g.shards = zeroed(g.shards, n)
	kept := 0
	for i := range n {
		s := shard(i)
		if s < 0 {
			continue
		}
		g.shards[i] = uint16(s + 1)
		g.starts[s]++
		kept++
	}
	// Turn the counts into ends, then fill from the back: the ends have become
	// starts when all are placed.
	sum := int32(0)
	for s := range shards {
		sum += g.starts[s]
		g.starts[s] = sum
	}
	g.starts[shards] = sum
	g.order = zeroed(g.order, kept)
	for i := n - 1; i >= 0; i-- {
		if s := g.shards[i]; s > 0 {
			g.starts[s-1]--
			g.order[g.starts[s-1]] = int32(i)
		}
	}
}

// Of returns the indexes of shard s, ascending; valid until the next Arrange.
func (g *Groups) Of(s int) []int32 { return g.order[g.starts[s]:g.starts[s+1]] }

// All walks the shards that have an index, ascending.
func (g *Groups) All() iter.Seq2[int, []int32] {
	return func(yield func(int, []int32) bool) {
		for s := range len(g.starts) - 1 {
			if of := g.Of(s); len(of) > 0 && !yield(s, of) {
				return
			}
		}
	}
}

func zeroed[T any](buf []T, n int) []T {
	if cap(buf) < n {
		return make([]T, n)
	}
	buf = buf[:n]
	clear(buf)
	return buf
}
