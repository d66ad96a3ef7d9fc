package push

import "testing"

// What a user's record means for a message. Only a known opt-out, or an
// unreadable record, holds back a critical message; unreadable preferences hold
// back every other one.
func TestUserVerdict(t *testing.T) {
	for _, tt := range []struct {
		why      string
		user     User
		verdict  Verdict // for an ordinary message
		reason   Reason
		critical Verdict
	}{
		{"nothing said", User{}, Undecided, "", Undecided},
		{"opted out of all", User{Preferences: Preferences{OptOutAll: true}}, Suppressed, OptedOutAll, Suppressed},
		{"of the channel", User{Preferences: Preferences{Channels: []string{"mail", ChannelPush}}}, Suppressed, OptedOutChannel, Suppressed},
		{"of another channel", User{Preferences: Preferences{Channels: []string{"mail"}}}, Undecided, "", Undecided},
		{"of the type", User{Preferences: Preferences{Types: []string{"a", "order"}}}, Suppressed, OptedOutType, Suppressed},
		{"of another type", User{Preferences: Preferences{Types: []string{"a"}}}, Undecided, "", Undecided},
		{"preferences that break a rule", User{Quarantine: PreferencesBroken}, Suppressed, PreferencesUnread, Undecided},
		{"preferences of an unknown version", User{Quarantine: PreferencesUnknown}, Deferred, UserQuarantined, Undecided},
		{"both", User{Quarantine: PreferencesUnknown | PreferencesBroken}, Suppressed, PreferencesUnread, Undecided},
		{"a device", User{Quarantine: DeviceUnread}, Undecided, "", Undecided},
		{"the record", User{Quarantine: RecordUnread, Preferences: Preferences{OptOutAll: true}}, Deferred, UserQuarantined, Deferred},
	} {
		if v, reason := tt.user.Verdict(&Message{Type: "order", Priority: High}); v != tt.verdict || reason != tt.reason {
			t.Errorf("%s: %v %q, want %v %q", tt.why, v, reason, tt.verdict, tt.reason)
		}
		if v, _ := tt.user.Verdict(&Message{Type: "order", Priority: Critical}); v != tt.critical {
			t.Errorf("%s: critical %v, want %v", tt.why, v, tt.critical)
		}
	}
}

// An opt-out of all known channels does not end a notification for a device
// that may belong to another channel; an opt-out of the type does.
func TestAnUnknownDeviceMayBeOfAnotherChannel(t *testing.T) {
	u := User{Preferences: Preferences{Channels: []string{"push"}, Types: []string{"news"}}, Quarantine: DeviceUnread}
	if v, why := u.Verdict(&Message{Type: "promo"}); v != Undecided {
		t.Errorf("ends %v %q", v, why)
	}
	if v, why := u.Verdict(&Message{Type: "news"}); v != Suppressed || why != OptedOutType {
		t.Errorf("of a type opted out of: %v %q", v, why)
	}
}
