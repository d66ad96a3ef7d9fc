package stages_test

import (
	"errors"
	"testing"

	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/stages"
)

func TestRecheck(t *testing.T) {
	device := pipeline.Device{Platform: pipeline.APNS, App: "shop", Token: "t1", Hash: "h1"}
	elsewhere := device
	elsewhere.App = "bank"
	for _, tt := range []struct {
		why  string
		user pipeline.User
		edit func(*pipeline.Item)
		old  bool // a newer one was accepted
		want pipeline.Reason
	}{
		{why: "nothing has changed", user: pipeline.User{Devices: []pipeline.Device{device}}},
		{why: "opted out of all", user: pipeline.User{Devices: []pipeline.Device{device}, Preferences: pipeline.Preferences{OptOutAll: true}}, want: pipeline.OptedOutAll},
		{why: "opted out of the type", user: pipeline.User{Devices: []pipeline.Device{device}, Preferences: pipeline.Preferences{Types: []string{"order"}}}, want: pipeline.OptedOutType},
		{why: "opted out of another type", user: pipeline.User{Devices: []pipeline.Device{device}, Preferences: pipeline.Preferences{Types: []string{"promo"}}}},
		{why: "the token is another user's by now", want: pipeline.TokenGone},
		{why: "the token is registered with another app", user: pipeline.User{Devices: []pipeline.Device{elsewhere}}, want: pipeline.TokenGone},
		{why: "nothing can be read of the user any more", user: pipeline.User{Quarantine: pipeline.RecordUnread}},
		{why: "perhaps the device is the part that cannot be read", user: pipeline.User{Quarantine: pipeline.DeviceUnread}},
		{why: "what the preferences say is not known, but whose the token is", user: pipeline.User{Quarantine: pipeline.PreferencesUnknown}, want: pipeline.TokenGone},
		{why: "only the preferences are unknown", user: pipeline.User{Devices: []pipeline.Device{device}, Quarantine: pipeline.PreferencesUnknown}},
		{why: "nothing can be read of the user, but there is a newer one", user: pipeline.User{Quarantine: pipeline.RecordUnread}, old: true,
			edit: func(it *pipeline.Item) { it.CollapseKey = "order-17" }, want: pipeline.Superseded},
		{why: "a device that the message names is nobody's", edit: func(it *pipeline.Item) { it.Device.Token = "t1" }},
		{why: "but its user may have opted out", user: pipeline.User{Preferences: pipeline.Preferences{OptOutAll: true}},
			edit: func(it *pipeline.Item) { it.Device.Token = "t1" }, want: pipeline.OptedOutAll},
		{why: "a newer one was accepted", user: pipeline.User{Devices: []pipeline.Device{device}}, old: true,
			edit: func(it *pipeline.Item) { it.CollapseKey = "order-17" }, want: pipeline.Superseded},
		{why: "a key that was made of the id", user: pipeline.User{Devices: []pipeline.Device{device}}, old: true,
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
		twice := []*pipeline.Delivery{{Item: &it, Device: device}, {Item: &it, Device: device}}
		s := &stages.Recheck{Users: registry{"u": tt.user}, Newest: n}
		if err := s.Recheck(t.Context(), twice); err != nil {
			t.Fatal(err)
		}
		for _, d := range twice {
			if (d.Verdict == pipeline.Suppressed) != (tt.want != "") || d.Reason != tt.want {
				t.Errorf("%s: %v %q, want %q", tt.why, d.Verdict, d.Reason, tt.want)
			}
		}
		if it.Verdict != pipeline.Undecided || len(n.asked) != 1 {
			t.Errorf("%s: the item is %v, asked %d times about it", tt.why, it.Verdict, len(n.asked))
		}
	}
}

// What cannot be read decides nothing.
func TestRecheckWaitsForItsStores(t *testing.T) {
	err := errors.New("redis is away")
	for _, s := range []*stages.Recheck{
		{Users: people{err: err}, Newest: &newest{}},
		{Users: registry{}, Newest: &newest{ids: []string{"n"}, err: err}},
	} {
		it := item("n", func(it *pipeline.Item) { it.CollapseKey = "k" })
		d := &pipeline.Delivery{Item: &it}
		if got := s.Recheck(t.Context(), []*pipeline.Delivery{d}); !errors.Is(got, err) || d.Verdict != pipeline.Undecided {
			t.Errorf("error %v, verdict %v; want the store's, and none", got, d.Verdict)
		}
	}
}
