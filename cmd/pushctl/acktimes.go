package main

import (
	"math/bits"
	"sync"
	"time"
)

// ackTimes counts durations in buckets of at most 1/64 of their value, so that
// any number of them takes the same memory. It is safe for concurrent use.
type ackTimes struct {
	mu     sync.Mutex
	counts [64 * 42]uint64 // guarded by mu
	total  uint64          // guarded by mu
}

// add counts a duration, with a resolution of one microsecond.
func (t *ackTimes) add(d time.Duration) {
	i := bucketOf(uint64(max(0, d.Microseconds())))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[min(i, len(t.counts)-1)]++
	t.total++
}

// quantile is the q-quantile of all durations, q from 0 to 1; 0 if there are none.
func (t *ackTimes) quantile(q float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen, want := uint64(0), uint64(q*float64(t.total)+0.5)
	for i, n := range t.counts {
		if seen += n; n > 0 && seen >= want {
			return time.Duration(bucketEnd(i)) * time.Microsecond
		}
	}
	return 0
}

// bucketOf is the bucket of a duration. Below 128 µs every value has its own;
// above, each power of two is divided into 64.
func bucketOf(us uint64) int {
	if us < 128 {
		return int(us)
	}
	shift := bits.Len64(us) - 7
	return 64*shift + int(us>>shift)
}

// bucketEnd is the largest value of a bucket, in microseconds.
func bucketEnd(i int) uint64 {
	if i < 128 {
		return uint64(i)
	}
	shift := i/64 - 1
	return uint64(i-64*shift+1)<<shift - 1
}
