package fanout

import "testing"

// Of each run of chunks, which bring each other, the last one must have ended, or one that
// was stopped: then none follows.
func TestSettled(t *testing.T) {
	for _, tt := range []struct {
		why         string
		open, parts int
		ended       map[int]bool
		want        bool
	}{
		{"nothing has ended", 2, 4, nil, false},
		{"all have ended", 2, 4, map[int]bool{0: false, 1: false, 2: false, 3: false}, true},
		{"the one behind an ended one is open", 2, 4, map[int]bool{0: false, 1: true}, false},
		{"each run is stopped", 2, 4, map[int]bool{0: false, 1: true, 2: true}, true},
		{"both are stopped at once", 2, 8, map[int]bool{0: true, 1: true}, true},
		{"one of two", 2, 8, map[int]bool{0: true}, false},
		{"fewer parts than may be open", 16, 2, map[int]bool{0: true, 1: false}, true},
		{"nobody knows how many are open", 0, 2, map[int]bool{0: true}, false},
		{"all of these are stopped", 0, 2, map[int]bool{0: true, 1: true}, true},
	} {
		j := Job{Open: tt.open, To: To{Parts: tt.parts}}
		if got := j.settled(tt.ended); got != tt.want {
			t.Errorf("%s: %v", tt.why, got)
		}
	}
}
