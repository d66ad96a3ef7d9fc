package push

import "testing"

// What a user's record means for a message: ordinary, critical, critical in a lane to
// which "blocked" does not apply, and there for a device that the message names. Nothing
// but "blocked" holds back what is critical, and what may say so and cannot be read.
func TestUserVerdict(t *testing.T) {
	out := func(p Preferences) User { return User{Preferences: p} }
	held, sent := Deferred, Undecided
	for _, tt := range []struct {
		why                      string
		user                     User
		verdict                  Verdict
		reason                   Reason
		critical, ignored, named Verdict
	}{
		{"nothing said", User{}, sent, "", sent, sent, sent},
		{"blocked", out(Preferences{Blocked: true}), Suppressed, Blocked, Suppressed, sent, sent},
		{"blocked comes before all else", out(Preferences{Blocked: true, OptOutAll: true, Types: []string{"order"}}), Suppressed, Blocked, Suppressed, sent, sent},
		{"opted out of all", out(Preferences{OptOutAll: true}), Suppressed, OptedOutAll, sent, sent, sent},
		{"of the channel", out(Preferences{Channels: []string{"mail", ChannelPush}}), Suppressed, OptedOutChannel, sent, sent, sent},
		{"of another channel", out(Preferences{Channels: []string{"mail"}}), sent, "", sent, sent, sent},
		{"of the type", out(Preferences{Types: []string{"a", "order"}}), Suppressed, OptedOutType, sent, sent, sent},
		{"of another type", out(Preferences{Types: []string{"a"}}), sent, "", sent, sent, sent},
		{"of the sender", out(Preferences{Senders: []string{"a", "shop"}}), Suppressed, OptedOutSender, sent, sent, sent},
		{"of another sender", out(Preferences{Senders: []string{"a"}}), sent, "", sent, sent, sent},
		{"of a sender called as the type", out(Preferences{Senders: []string{"order"}}), sent, "", sent, sent, sent},
		{"opted in to a type that needs no consent", out(Preferences{OptIns: []string{"order"}}), sent, "", sent, sent, sent},
		{"preferences that break a rule", User{Quarantine: PreferencesBroken}, Suppressed, PreferencesUnread, held, sent, sent},
		{"preferences of an unknown version", User{Quarantine: PreferencesUnknown}, held, UserQuarantined, held, sent, sent},
		{"both", User{Quarantine: PreferencesUnknown | PreferencesBroken}, Suppressed, PreferencesUnread, held, sent, sent},
		{"a device", User{Quarantine: DeviceUnread}, sent, "", sent, sent, sent},
		{"the record", User{Quarantine: RecordUnread, Preferences: Preferences{OptOutAll: true}}, held, UserQuarantined, held, held, sent},
	} {
		ignore := &Consent{IgnoreBlocked: true}
		if v, reason := tt.user.Verdict(&Message{Type: "order", SenderID: "shop", Priority: High}, &Consent{}); v != tt.verdict || reason != tt.reason {
			t.Errorf("%s: %v %q, want %v %q", tt.why, v, reason, tt.verdict, tt.reason)
		}
		if v, reason := tt.user.Verdict(&Message{Type: "order", SenderID: "shop", Priority: High, Device: Target{Token: "t"}}, ignore); v != tt.verdict || reason != tt.reason {
			t.Errorf("%s: not critical in a lane that ignores blocked: %v %q, want %v %q", tt.why, v, reason, tt.verdict, tt.reason)
		}
		m := &Message{Type: "order", SenderID: "shop", Priority: Critical}
		if v, _ := tt.user.Verdict(m, &Consent{OptIn: map[string]bool{"order": true}}); v != tt.critical {
			t.Errorf("%s: critical %v, want %v", tt.why, v, tt.critical)
		}
		if v, _ := tt.user.Verdict(m, ignore); v != tt.ignored {
			t.Errorf("%s: critical, blocked ignored: %v, want %v", tt.why, v, tt.ignored)
		}
		m.Device.Token = "t"
		if v, _ := tt.user.Verdict(m, ignore); v != tt.named {
			t.Errorf("%s: the same to a named device: %v, want %v", tt.why, v, tt.named)
		}
		if v, _ := tt.user.Verdict(m, &Consent{}); v != tt.critical {
			t.Errorf("%s: critical to a named device: %v, want %v", tt.why, v, tt.critical)
		}
	}
}

// A type that needs consent goes to who agreed, and did not opt out of it since.
func TestConsent(t *testing.T) {
	c := &Consent{OptIn: map[string]bool{"survey": true}}
	for _, tt := range []struct {
		why    string
		prefs  Preferences
		marks  Quarantine
		reason Reason
	}{
		{"nothing said", Preferences{}, 0, NotOptedIn},
		{"agreed", Preferences{OptIns: []string{"a", "survey"}}, 0, ""},
		{"agreed to another type", Preferences{OptIns: []string{"a"}}, 0, NotOptedIn},
		{"agreed, and opted out", Preferences{OptIns: []string{"survey"}, Types: []string{"survey"}}, 0, OptedOutType},
		{"what was said is not known", Preferences{}, PreferencesUnknown, UserQuarantined},
	} {
		u := User{Preferences: tt.prefs, Quarantine: tt.marks}
		if v, reason := u.Verdict(&Message{Type: "survey", Priority: Medium}, c); reason != tt.reason || (v == Undecided) != (reason == "") {
			t.Errorf("%s: %v %q, want %q", tt.why, v, reason, tt.reason)
		}
		if v, _ := (&User{}).Verdict(&Message{Type: "order", Priority: Medium}, c); v != Undecided {
			t.Errorf("a type that needs none: %v", v)
		}
	}
}

// An opt-out of all known channels does not end a notification for a device
// that may belong to another channel; an opt-out of the type does.
func TestAnUnknownDeviceMayBeOfAnotherChannel(t *testing.T) {
	u := User{Preferences: Preferences{Channels: []string{"push"}, Types: []string{"news"}}, Quarantine: DeviceUnread}
	if v, why := u.Verdict(&Message{Type: "promo"}, &Consent{}); v != Undecided {
		t.Errorf("ends %v %q", v, why)
	}
	if v, why := u.Verdict(&Message{Type: "news"}, &Consent{}); v != Suppressed || why != OptedOutType {
		t.Errorf("of a type opted out of: %v %q", v, why)
	}
}
