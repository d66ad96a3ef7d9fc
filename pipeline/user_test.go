package pipeline

import "testing"

// What a user says, or cannot be read to say, to a message: only an opt-out that
// is known holds up what is critical, and a record that cannot be read all.
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

// A final state below a claim is said again by the record that made the claim,
// and by no other.
func TestOvertaken(t *testing.T) {
	for _, tt := range []struct {
		why    string
		h      *History
		want   Verdict
		reason Reason
		ok     bool
	}{
		{"no row", history(), Undecided, "", false},
		{"open, and never ended", history(row("a", 0, StateRetrying)), Undecided, "", false},
		{"ended, and nothing above it", history(row("a", 0, StateRetrying), row("a", 1, StateFailed)), Undecided, "", false},
		{"ended below the claim", history(row("a", 0, StateFailed), row("a", 1, StateHeld)), Failed, "", true},
		{"and this record was handed over itself", history(row("a", 0, StateFailed), row("a", 1, StateHeld), row("a", 2, StateHeld)), Undecided, "", false},
		{"another device's", history(row("b", 0, StateFailed), row("a", 1, StateHeld)), Undecided, "", false},
		{"delivered is never overtaken", history(row("a", 0, StateDelivered), row("a", 1, StateHeld)), Undecided, "", false},
	} {
		inAnyOrder(t, tt.h, func(h *History) {
			v, reason, ok := h.Overtaken("a", 2)
			if v != tt.want || reason != tt.reason || ok != tt.ok {
				t.Errorf("%s: %v: %v %q %v, want %v %q %v", tt.why, h.Rows, v, reason, ok, tt.want, tt.reason, tt.ok)
			}
		})
	}
	said := history(Row{ID: "n", Device: "a", State: StateFailed, Reason: "BadDeviceToken"}, row("a", 1, StateHeld))
	if _, reason, _ := said.Overtaken("a", 2); reason != "BadDeviceToken" {
		t.Errorf("the reason is %q", reason)
	}
}

// What this worker will not send is the next owner's, so that its offset stays;
// only what is committed, and so nobody else's, is answered for.
func TestUnsent(t *testing.T) {
	ours, next := &Delivery{Item: &Item{committed: true}}, &Delivery{Item: &Item{}}
	unsent([]*Delivery{ours, next})
	if !next.abandoned || next.Result.Class != NoAnswer {
		t.Errorf("what is not committed: abandoned %v, %v", next.abandoned, next.Result.Class)
	}
	if ours.abandoned || ours.Result.Class != Held || ours.Result.Reason != string(WorkerStopped) || ours.Result.Scope != ScopeRoute {
		t.Errorf("what is committed: abandoned %v, %+v", ours.abandoned, ours.Result)
	}
}
