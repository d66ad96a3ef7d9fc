package pipeline

import "testing"

// Each way on says which row tells of it.
func TestHandOversNameTheirState(t *testing.T) {
	it := &Item{}
	answered := func(s State, p Platform) *Delivery {
		return &Delivery{Item: it, Route: Route{Platform: p}, ending: Ending{State: s}}
	}
	want := map[Destination]State{ToRetry: StateRetrying, ToHold: StateHeld, ToDLQ: 0}
	hs, _ := handovers([]*Delivery{answered(StateRetrying, FCM), answered(StateHeld, FCM), answered(StateHeld, APNS), answered(StateDeadLettered, FCM)})
	if len(hs) != 4 {
		t.Fatalf("%d hand-overs", len(hs))
	}
	for _, h := range hs {
		if h.State != want[h.To] {
			t.Errorf("to %d as %v, want %v", h.To, h.State, want[h.To])
		}
	}
	deferred := &Delivery{Item: &Item{Verdict: Deferred}, Verdict: Deferred, ending: Ending{State: StateHeld}}
	if hs, _ := handovers([]*Delivery{deferred}); len(hs) != 1 || hs[0].To != ToRetry || hs[0].State != StateHeld {
		t.Errorf("what is put off: %+v", hs)
	}
}
