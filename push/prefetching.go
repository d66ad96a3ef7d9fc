package push

import (
	"iter"
	"runtime"
)

// Memory that comes at once. A worker's batches are larger than its caches: 10,000 items
// with their deliveries and records are some 20 MB, and there are several of them. A step
// that comes to a line of memory which is in no cache waits for it, and asks for the next
// line only afterwards: 150 to 270 ns each. Reads that do not need each other's results
// take 15 to 27 ns each, because a processor has a dozen or more of them under way
// (bench/README.md). So a loop first reads one byte of each line that its next steps will
// need, and nothing else, and then does its steps. Go has no instruction for that, and
// reads that are made do as well.

// Prefetching ranges over 0 to n-1 and yields as Yielding does, and before each Stretch of
// steps calls read for all of them: read(i) is to return the sum of a byte of each line
// that step i will need. It must not change anything, nor read what others may write then,
// and it may be called for steps that the loop does not come to.
func Prefetching(n int, read func(i int) byte) iter.Seq[int] {
	return func(step func(int) bool) {
		for from := 0; from < n; from += Stretch {
			if from > 0 {
				runtime.Gosched()
			}
			to := min(from+Stretch, n)
			prefetch(from, to, read)
			for i := from; i < to; i++ {
				if !step(i) {
					return
				}
			}
		}
	}
}

// Prefetch does what Prefetching does before a step: it reads if a stretch of a loop to n
// begins with step i. It is for loops that do not yield, as they hold a lock or take too
// little time.
func Prefetch(i, n int, read func(i int) byte) {
	if i%Stretch == 0 {
		prefetch(i, min(i+Stretch, n), read)
	}
}

// PrefetchAll reads for 0 to n-1, for several loops over the same. What it reads is to stay
// in a second-level cache until the last of them: some 500 KiB at the most.
func PrefetchAll(n int, read func(i int) byte) { prefetch(0, n, read) }

// prefetch is not inlined: who sees that nobody needs the sum may leave the reads out.
//
//go:noinline
func prefetch(from, to int, read func(int) byte) (sum byte) {
	for i := from; i < to; i++ {
		sum += read(i)
	}
	return sum
}

// Ends sums the first and the last byte of a text: a short one is in one line or two.
func Ends[T ~string | ~[]byte](text T) byte {
	if len(text) == 0 {
		return 0
	}
	return text[0] + text[len(text)-1]
}
