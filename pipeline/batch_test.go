package pipeline

import (
	"testing"

	"github.com/pushfleet/pushfleet/push"
)

// The rows of a record without a usable id of its own are found by its place: under a
// reused id they would be taken for another notification's.
func TestRowID(t *testing.T) {
	for _, tt := range []struct {
		why    string
		id     string
		reason push.Reason
		own    bool
	}{
		{"its own id", "n", "", true},
		{"dead for another reason", "n", push.BadJSON, true},
		{"the id belongs to another user's record", "n", push.IDReused, false},
		{"no id could be read", "", push.BadJSON, false},
		{"neither", "", push.IDReused, false},
	} {
		it := &Item{Message: push.Message{ID: tt.id}, Partition: push.Partition{Topic: "push.critical", ID: 3}, Offset: 42, Reason: tt.reason}
		want := push.PlaceID("push.critical", 3, 42)
		if tt.own {
			want = tt.id
		}
		if got := it.RowID(); got != want {
			t.Errorf("%s: got %q, want %q", tt.why, got, want)
		}
	}
}

// An item ends as a copy only if another record has claimed all of its devices.
func TestClaimed(t *testing.T) {
	for _, tt := range []struct {
		why     string
		devices []push.Class
		want    bool
	}{
		{"without devices nobody has claimed anything", nil, false},
		{"its only one", []push.Class{push.Claimed}, true},
		{"all of them", []push.Class{push.Claimed, push.Claimed}, true},
		{"the first was sent", []push.Class{push.Delivered, push.Claimed}, false},
		{"the last was sent", []push.Class{push.Claimed, push.Delivered}, false},
		{"none of them", []push.Class{push.Delivered}, false},
	} {
		it := &Item{}
		for _, c := range tt.devices {
			it.Deliveries = append(it.Deliveries, Delivery{Item: it, Result: push.Result{Class: c}})
		}
		if got := it.claimed(); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.why, got, tt.want)
		}
	}
}

// Who owns a message is its user, else its device, and nobody if it names neither.
func TestOwners(t *testing.T) {
	device := push.Target{Platform: push.FCM, Token: "t"}
	for want, m := range map[string]push.Message{
		"":                             {},
		"ada":                          {UserID: "ada"},
		push.DeviceHash(push.FCM, "t"): {Device: device},
		"bob":                          {UserID: "bob", Device: device},
	} {
		if got := (&Item{Message: m}).Owner(); got != want {
			t.Errorf("%+v: got owner %q, want %q", m, got, want)
		}
	}
}
