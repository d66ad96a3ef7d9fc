package pipeline

import (
	"testing"
	"time"

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

// What is told of a dead token is all that the registry, or who else reads the topic, knows of it.
func TestFeedbackNamesTheDevice(t *testing.T) {
	dead, sent := time.Unix(1_700_000_000, 0), time.Unix(1_795_862_400, 5)
	device := push.Device{Platform: push.APNS, Environment: "sandbox", App: "shop", Token: "0011", Hash: "a hash"}
	d := &Delivery{Item: &Item{}, Route: push.Route{Platform: device.Platform, App: device.App, Environment: device.Environment},
		Device: Device{Token: device.Token, Hash: device.Hash}, sentAt: push.At(sent),
		Result: push.Result{Class: push.Gone, Reason: "Unregistered", DeadSince: push.At(dead)}}
	h := d.handover()
	if h.To != ToFeedback || h.Device != device || !h.DeadSince.Equal(dead) || !h.SentAt.Equal(sent) || h.Reason != "Unregistered" {
		t.Errorf("got %+v, want feedback about %+v", h, device)
	}
}
