//go:build linux

package send

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// latencies counts times in buckets of 0.8 % width, from a microsecond to half
// an hour. It may be written and read at once.
type latencies struct{ buckets [bucketCount]atomic.Int64 }

// latencySums are its counts at one moment.
type latencySums [bucketCount]int64

const (
	bucketBits  = 7 // of precision
	bucketCount = 32 << bucketBits
)

func (l *latencies) add(d time.Duration, n int64) { l.buckets[bucketOf(d)].Add(n) }

func (l *latencies) sums() (s latencySums) {
	for i := range l.buckets {
		s[i] = l.buckets[i].Load()
	}
	return s
}

// bucketOf is exact below 256 us, and from there on keeps the first 8 bits.
func bucketOf(d time.Duration) int {
	us := uint64(max(0, d.Microseconds()))
	shift := max(0, bits.Len64(us)-bucketBits-1)
	return min(shift<<bucketBits+int(us>>shift), bucketCount-1)
}

// bucketTime is the middle of a bucket.
func bucketTime(i int) time.Duration {
	shift := max(0, i>>bucketBits-1)
	low := uint64(i-shift<<bucketBits) << shift
	return time.Duration(low)*time.Microsecond + time.Duration(1)<<shift*time.Microsecond/2
}

// since returns the median and the 99th percentile of what was added between
// two moments, in ms; nil when that is nothing.
func (s *latencySums) since(before *latencySums) (p50, p99 *float64) {
	var total int64
	for i := range s {
		total += s[i] - before[i]
	}
	if total == 0 {
		return nil, nil
	}
	quantile := func(part float64) *float64 {
		left := int64(float64(total) * part)
		for i := range s {
			if left -= s[i] - before[i]; left < 0 {
				ms := float64(bucketTime(i)) / float64(time.Millisecond)
				return &ms
			}
		}
		return nil
	}
	return quantile(0.5), quantile(0.99)
}
