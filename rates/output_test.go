package rates

import (
	"math"
	"testing"
	"time"
	"unsafe"
)

// setBack is a time at which the wall clock has been set back by an hour: what
// time.Now returns after that. Nothing else makes one.
func setBack(t time.Time) time.Time {
	const seconds = 30 // where they begin in the first word, above the nanoseconds
	*(*uint64)(unsafe.Pointer(&t)) -= 3600 << seconds
	return t
}

// A wall clock that is set back by an hour stops nothing for an hour: what is even is
// measured by the monotonic clock.
func TestAWallClockThatIsSetBack(t *testing.T) {
	const rate, each = 1000, time.Second / 1000
	start := time.Now()
	if back := setBack(start); back.Sub(start) != 0 || start.Unix()-back.Unix() != 3600 {
		t.Fatalf("%v set back is %v", start, back)
	}
	o := output{rate: rate}
	o.add(slot{}, slot{from: start, lapses: start.Add(time.Minute), step: each, sends: 2 * rate})
	sent := 0
	for i := range 2 * rate {
		now := start.Add(time.Duration(i) * each)
		if i >= rate {
			now = setBack(now)
		}
		n, _, _ := o.take(now, false, 256)
		sent += n
	}
	if sent != 2*rate {
		t.Errorf("%d sent, want all %d", sent, 2*rate)
	}
}

// One worker can send all of a small rate, too.
func TestASmallRateCanBeUsedByOne(t *testing.T) {
	start := time.Now()
	for rate := 1.0; rate <= 60; rate++ {
		o := output{rate: rate}
		o.add(slot{}, slot{from: start, lapses: start.Add(time.Minute), step: time.Duration(float64(time.Second) / rate), sends: 1000})
		sent := 0
		for now := start; now.Before(start.Add(10 * time.Second)); now = now.Add(2 * time.Millisecond) {
			n, _, _ := o.take(now, false, 256)
			sent += n
		}
		if want := 10 * rate; math.Abs(float64(sent)-want) > 1 {
			t.Errorf("of %v a second one worker has sent %d in 10 s", rate, sent)
		}
	}
}
