package stages_test

import (
	"errors"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/stages"
)

func TestRecheck(t *testing.T) {
	device := push.Device{Platform: push.APNS, App: "shop", Token: "t1", Hash: "h1"}
	elsewhere := device
	elsewhere.App = "bank"
	for _, tt := range []struct {
		why  string
		user push.User
		edit func(*pipeline.Item)
		old  bool // a newer one was accepted
		want push.Reason
	}{
		{why: "nothing has changed", user: push.User{Devices: []push.Device{device}}},
		{why: "opted out of all", user: push.User{Devices: []push.Device{device}, Preferences: push.Preferences{OptOutAll: true}}, want: push.OptedOutAll},
		{why: "opted out of the type", user: push.User{Devices: []push.Device{device}, Preferences: push.Preferences{Types: []string{"order"}}}, want: push.OptedOutType},
		{why: "opted out of another type", user: push.User{Devices: []push.Device{device}, Preferences: push.Preferences{Types: []string{"promo"}}}},
		{why: "opted out of all channels", user: push.User{Devices: []push.Device{device}, Preferences: push.Preferences{Channels: []string{"push"}}}, want: push.OptedOutChannel},
		{why: "opted out of this device's channel, while one that cannot be read may have another", user: push.User{Devices: []push.Device{device}, Quarantine: push.DeviceUnread,
			Preferences: push.Preferences{Channels: []string{"push"}}}, want: push.OptedOutChannel},
		{why: "opted out of another channel", user: push.User{Devices: []push.Device{device}, Preferences: push.Preferences{Channels: []string{"email"}}}},
		{why: "the token is another user's by now", want: push.TokenGone},
		{why: "the token is registered with another app", user: push.User{Devices: []push.Device{elsewhere}}, want: push.TokenGone},
		{why: "nothing can be read of the user any more", user: push.User{Quarantine: push.RecordUnread}},
		{why: "perhaps the device is the part that cannot be read", user: push.User{Quarantine: push.DeviceUnread}},
		{why: "what the preferences say is not known, but whose the token is", user: push.User{Quarantine: push.PreferencesUnknown}, want: push.TokenGone},
		{why: "only the preferences are unknown", user: push.User{Devices: []push.Device{device}, Quarantine: push.PreferencesUnknown}},
		{why: "nothing can be read of the user, but there is a newer one", user: push.User{Quarantine: push.RecordUnread}, old: true,
			edit: func(it *pipeline.Item) { it.CollapseKey = "order-17" }, want: push.Superseded},
		{why: "a device that the message names is nobody's", edit: func(it *pipeline.Item) { it.Device.Token = "t1" }},
		{why: "but its user may have opted out", user: push.User{Preferences: push.Preferences{OptOutAll: true}},
			edit: func(it *pipeline.Item) { it.Device.Token = "t1" }, want: push.OptedOutAll},
		{why: "a newer one was accepted", user: push.User{Devices: []push.Device{device}}, old: true,
			edit: func(it *pipeline.Item) { it.CollapseKey = "order-17" }, want: push.Superseded},
		{why: "a key that was made of the id", user: push.User{Devices: []push.Device{device}}, old: true,
			edit: func(it *pipeline.Item) { it.CollapseKey, it.Derived = "order-17", true }},
	} {
		it := item("n", func(it *pipeline.Item) {
			it.UserID, it.Type = "u", "order"
			if tt.edit != nil {
				tt.edit(it)
			}
		})
		n := &newest{}
		if tt.old {
			n.ids = []string{"n"}
		}
		waits := pipeline.Delivery{Item: &it, Device: pipeline.Device{Token: device.Token, Hash: device.Hash}, Route: push.Route{Platform: device.Platform}}
		again := waits
		twice := []*pipeline.Delivery{&waits, &again}
		s := &stages.Recheck{Users: registry{"u": tt.user}, Newest: n}
		if err := s.Recheck(t.Context(), twice); err != nil {
			t.Fatal(err)
		}
		for _, d := range twice {
			if (d.Verdict == push.Suppressed) != (tt.want != "") || d.Reason != tt.want {
				t.Errorf("%s: got %v %q, want %q", tt.why, d.Verdict, d.Reason, tt.want)
			}
		}
		if it.Verdict != push.Undecided || len(n.asked) != 1 {
			t.Errorf("%s: got item %v after %d requests", tt.why, it.Verdict, len(n.asked))
		}
	}
}

// A store that cannot be read decides nothing.
func TestRecheckWaitsForItsStores(t *testing.T) {
	err := errors.New("redis is away")
	for _, s := range []*stages.Recheck{
		{Users: people{err: err}, Newest: &newest{}},
		{Users: registry{}, Newest: &newest{ids: []string{"n"}, err: err}},
	} {
		it := item("n", func(it *pipeline.Item) { it.CollapseKey = "k" })
		d := &pipeline.Delivery{Item: &it}
		if got := s.Recheck(t.Context(), []*pipeline.Delivery{d}); !errors.Is(got, err) || d.Verdict != push.Undecided {
			t.Errorf("got error %v, verdict %v; want the store's error and no verdict", got, d.Verdict)
		}
	}
}
