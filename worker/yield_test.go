package worker

import (
	"slices"
	"testing"
)

// The lowest lane pauses first, one more each round while one above is behind, the first
// lane never; who is not behind any more lets all go on.
func TestTheLowestLanePausesFirst(t *testing.T) {
	three := &turns{lanes: 3}
	rounds := []struct {
		why    string
		behind []bool
		want   []bool // which lanes pause then
	}{
		{"nobody is behind", []bool{false, false, false}, []bool{false, false, false}},
		{"promotions are", []bool{false, false, true}, []bool{false, false, true}},
		{"they still are", []bool{false, false, true}, []bool{false, false, true}},
		{"transactional ones too", []bool{false, true, true}, []bool{false, true, true}},
		{"these alone", []bool{false, true, false}, []bool{false, true, true}},
		{"promotions alone again", []bool{false, false, true}, []bool{false, false, true}},
		{"nobody", []bool{false, false, false}, []bool{false, false, false}},
		{"critical ones: the lowest first", []bool{true, false, false}, []bool{false, false, true}},
		{"critical ones: then the next", []bool{true, true, false}, []bool{false, true, true}},
		{"critical ones: never they themselves", []bool{true, true, true}, []bool{false, true, true}},
	}
	for _, r := range rounds {
		three.paused.Store(int32(pausing(int(three.paused.Load()), r.behind)))
		var got []bool
		for i := range 3 {
			yields := three.yields(i)
			got = append(got, yields != nil && yields())
		}
		if !slices.Equal(got, r.want) {
			t.Errorf("%s: lanes that pause: %v, want %v", r.why, got, r.want)
		}
	}
	if (*turns)(nil).yields(2) != nil {
		t.Error("without a limit a lane yields")
	}
}

// A lane is behind when the limit refused it something and more waits than it sends in two
// rounds: not for what waits for another reason, nor for a refusal that costs a moment.
func TestWhatIsBehind(t *testing.T) {
	last := []load{{begun: 100, refused: 5}, {begun: 100, refused: 5}, {begun: 100, refused: 5}, {begun: 100, refused: 5}}
	now := []load{
		{waits: 21, begun: 110, refused: 6},
		{waits: 20, begun: 110, refused: 6},
		{waits: 1000, begun: 110, refused: 5},
		{waits: 1, begun: 100, refused: 6},
	}
	if got, want := behind(last, now), []bool{true, false, false, true}; !slices.Equal(got, want) {
		t.Errorf("behind: %v, want %v", got, want)
	}
}
