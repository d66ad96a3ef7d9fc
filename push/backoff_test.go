package push

import (
	"math"
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	for _, tt := range []struct {
		why    string
		of     Backoff
		failed int
		most   time.Duration
	}{
		{"the first pause", Backoff{time.Second, time.Minute}, 1, time.Second},
		{"it doubles", Backoff{time.Second, time.Minute}, 4, 8 * time.Second},
		{"up to the longest", Backoff{time.Second, 5 * time.Second}, 4, 5 * time.Second},
		{"which is no power of the first", Backoff{time.Second, 5 * time.Second}, 1000, 5 * time.Second},
		{"the first may be the longer one", Backoff{time.Minute, time.Second}, 1, time.Second},
		{"without an overflow", Backoff{time.Second, math.MaxInt64 / 2}, math.MaxInt, math.MaxInt64 / 2},
		{"the shortest there is", Backoff{1, 1}, 3, 1},
	} {
		least, most := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			pause := tt.of.After(tt.failed)
			least, most = min(least, pause), max(most, pause)
		}
		if least < tt.most/2 || most > tt.most || tt.most > 100 && (least > tt.most/10*6 || most < tt.most/10*9) {
			t.Errorf("%s: %v to %v, want something between half of %v and all of it", tt.why, least, most, tt.most)
		}
	}
}
