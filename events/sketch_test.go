package events_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/push"
)

// Sketches of known numbers of users are as near as they promise: over 40 crowds the mean
// error is small, none is off by more than four standard errors, and each user counts once.
func TestSketchEstimates(t *testing.T) {
	const crowds = 40
	for _, tt := range []struct {
		users      int
		deviations float64 // the standard error that is promised
	}{{1, 0}, {10, 0.03}, {100, 0.025}, {1000, 0.033}, {3000, 0.033}, {10_000, 0.033}, {100_000, 0.033}} {
		sum, squares := 0.0, 0.0
		for crowd := range crowds {
			var s events.Sketch
			for u := range tt.users {
				s.Add(push.UserHash(fmt.Sprint("user-", crowd, "-", u)))
				if u < 1000 {
					s.Add(push.UserHash(fmt.Sprint("user-", crowd, "-", u/2))) // again
				}
			}
			off := float64(s.Estimate())/float64(tt.users) - 1
			if sum += off; math.Abs(off) > 4*tt.deviations {
				t.Errorf("%d users are estimated as %d", tt.users, s.Estimate())
			}
			squares += off * off
		}
		mean, deviation := sum/crowds, math.Sqrt(squares/crowds)
		t.Logf("%d users: mean error %.2f %%, standard error %.2f %%", tt.users, 100*mean, 100*deviation)
		if deviation > 1.3*tt.deviations || math.Abs(mean) > tt.deviations/2 {
			t.Errorf("%d users: mean error %.4f, standard error %.4f, want about %.4f", tt.users, mean, deviation, tt.deviations)
		}
	}
	if n := new(events.Sketch).Estimate(); n != 0 {
		t.Errorf("an empty one has %d", n)
	}
}

// Merging is as if all had been added to one, in whatever order and however often; and
// what is told reads as it is.
func TestSketchesMerge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var parts [3]events.Sketch
		var whole, merged events.Sketch
		for _, hash := range rapid.SliceOf(rapid.OneOf(rapid.Uint64(), rapid.SampledFrom([]uint64{0, math.MaxUint64, 1 << 54, 1<<54 - 1}))).Draw(rt, "users") {
			whole.Add(hash)
			parts[rapid.IntRange(0, 2).Draw(rt, "worker")].Add(hash)
		}
		for _, i := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 9).Draw(rt, "order") {
			merged.Merge(&parts[i])
		}
		for i := range parts {
			text, err := json.Marshal(&parts[i])
			if err != nil {
				rt.Fatal(err)
			}
			var back events.Sketch
			if err := json.Unmarshal(text, &back); err != nil || back != parts[i] {
				rt.Fatalf("%s reads as another one: %v", text, err)
			}
			merged.Merge(&back)
		}
		if merged != whole {
			rt.Error("merged are others than whole")
		}
	})
}

// A text reads as a sketch, or is refused; its estimate is a number.
func FuzzSketch(f *testing.F) {
	for _, text := range []string{"", "AB", strings.Repeat("A", 1024), strings.Repeat("3", 1024), strings.Repeat("4", 1024), strings.Repeat("_", 1024), strings.Repeat("B", 1023), strings.Repeat("B", 1025), strings.Repeat("\x00", 1024)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var s events.Sketch
		err := s.UnmarshalText(text)
		if err != nil {
			if s != (events.Sketch{}) {
				t.Error("one that is refused was taken in part")
			}
			return
		}
		if back, _ := s.MarshalText(); string(back) != strings.TrimRight(string(text), "A") || len(back) > 1024 {
			t.Errorf("%q reads as %q", text, back)
		}
		if n := s.Estimate(); n < 0 || n > 1e12 || n == 0 && s != (events.Sketch{}) {
			t.Errorf("%q are %d", text, n)
		}
	})
}

// Workers and readers of all versions agree on the form, which docs/events.md describes: the
// first ten bits are the register, and one more than the zeros that follow is what it holds.
func TestSketchForm(t *testing.T) {
	var s events.Sketch
	for _, hash := range []uint64{0, 3<<54 | 1<<51, 3<<54 | 1<<52, 5<<54 | 1<<53, 1023<<54 | 1} {
		s.Add(hash)
	}
	want := "3AADAB" + strings.Repeat("A", 1017) + "2"
	if text, err := s.MarshalText(); err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

// Adding costs no memory.
func TestSketchAllocatesNothing(t *testing.T) {
	var s, o events.Sketch
	if n := testing.AllocsPerRun(100, func() { s.Add(7); s.Merge(&o); s.Estimate() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
