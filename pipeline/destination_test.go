package pipeline

import (
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// Each way on says which row tells of it.
func TestHandOversNameTheirState(t *testing.T) {
	it := &Item{}
	answered := func(s push.State, p push.Platform) *Delivery {
		return &Delivery{Item: it, Route: push.Route{Platform: p}, ending: Ending{State: s}}
	}
	want := map[Destination]push.State{ToRetry: push.StateRetrying, ToHold: push.StateHeld, ToDLQ: 0}
	hs, _ := handovers([]*Delivery{answered(push.StateRetrying, push.FCM), answered(push.StateHeld, push.FCM), answered(push.StateHeld, push.APNS), answered(push.StateDeadLettered, push.FCM)})
	if len(hs) != 4 {
		t.Fatalf("got %d hand-overs, want 4", len(hs))
	}
	for _, h := range hs {
		if h.State != want[h.To] {
			t.Errorf("hand-over to destination %d: got state %v, want %v", h.To, h.State, want[h.To])
		}
	}
	deferred := &Delivery{Item: &Item{Verdict: push.Deferred}, Verdict: push.Deferred, ending: Ending{State: push.StateHeld}}
	if hs, _ := handovers([]*Delivery{deferred}); len(hs) != 1 || hs[0].To != ToDefer || hs[0].State != push.StateHeld {
		t.Errorf("deferred item: got %+v, want one HELD record for a deferral topic", hs)
	}
}
