package push_test

import (
	"math"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// What fits into an Instant comes back to the nanosecond, and only no time is none.
func TestInstantsComeBack(t *testing.T) {
	now := time.Now()
	for _, at := range []time.Time{
		{}, now, now.UTC(), now.In(time.FixedZone("far", 14*3600)), time.UnixMilli(1_795_862_400_123),
		time.Unix(0, 0), time.UnixMilli(0).UTC(), time.Unix(0, 1), time.Unix(0, -1), time.Unix(-1, 0), // a record may say 1970, or before
		time.Date(1700, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(2262, 1, 1, 0, 0, 0, 999_999_999, time.UTC),
	} {
		got := push.At(at)
		if !got.Time().Equal(at) || got.IsZero() != at.IsZero() || got.Time().IsZero() != at.IsZero() {
			t.Errorf("%v came back as %v", at, got.Time())
		}
	}
}

// Producers write any year. One that does not fit is as early or late as can be, never the
// other way round: time.Time's own UnixNano would be.
func TestInstantsKeepTheirOrder(t *testing.T) {
	times := []time.Time{
		time.Unix(math.MinInt64/2, 0), time.Time{}.Add(1), time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(1677, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(1678, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(0, -1), time.Unix(0, 0), time.Unix(0, 1), time.Now(), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Unix(math.MaxInt64/int64(time.Second), 900_000_000), // of a second that fits in part
		time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), time.Unix(math.MaxInt64/2, 0),
	}
	fits := func(at time.Time) bool { return at.Year() >= 1678 && at.Year() <= 2262 }
	for i, at := range times {
		got := push.At(at)
		if got.IsZero() {
			t.Errorf("%v is none", at)
		}
		if i > 0 && (got < push.At(times[i-1]) || fits(at) && got == push.At(times[i-1])) {
			t.Errorf("%v does not come after %v", got.Time(), push.At(times[i-1]).Time())
		}
		if year := got.Time().Year(); !fits(at) && year != 1677 && year != 2262 {
			t.Errorf("%v became %v", at, got.Time())
		}
	}
}
