package invariants

import (
	"strings"
	"testing"
)

// An outcome for another reason than the one that was demanded is none.
func TestReasons(t *testing.T) {
	for reason, want := range map[string]bool{"bad_json": true, "": true, "too_deep": false, "bad": false} {
		l := clean()
		l.Producer.Entries[2].Reason, l.Producer.Entries[2].Kind = reason, "cut off"
		l.Status.Entries[4].Reason = "bad_json:@17"
		r := Check(l)
		if r.Clean() != want || !want && !strings.Contains(r.Err().Error(), "c (push.main/0/2, cut off) ended DEAD_LETTERED, and not because of "+reason) {
			t.Errorf("%q: %v", reason, r.Err())
		}
	}
}

// Offsets go back only where somebody set them back by hand.
func TestRewinds(t *testing.T) {
	for _, tt := range []struct {
		why   string
		event Event
		fine  bool
	}{
		{"set back by hand", Event{Kind: "rewind", Start: at(1400), End: at(1600), Rewinds: true}, true},
		{"set back at another time", Event{Kind: "rewind", Start: at(2400), End: at(2600), Rewinds: true}, false},
		{"a kill", Event{Kind: "kill", Start: at(1400), End: at(1600), Repeats: 3}, false},
	} {
		l := clean()
		l.Events = []Event{tt.event}
		sampled(l, 1500, func(s *Sample) { s.Committed = 2 })
		sampled(l, 1700, func(s *Sample) { s.Committed = 5 })
		if r := Check(l); (r.Violations[I5] == 0) != tt.fine {
			t.Errorf("%s: %v", tt.why, r.Err())
		}
	}
}
