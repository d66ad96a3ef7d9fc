package record

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// withDevices is a user with n devices, whose hashes begin with name.
func withDevices(name string, n int, version string) *push.User {
	u := new(push.User)
	for i := range n {
		hash := fmt.Sprint(name, i)
		u.Devices = append(u.Devices, push.Device{Platform: push.FCM, App: "shop", Token: "token of " + hash, Hash: hash, AppVersion: version,
			RegisteredAt: time.UnixMilli(1_790_000_000_000).UTC()})
	}
	return u
}

// Users of a batch share a piece of memory. One that is read again, with more devices than
// before, takes none of its neighbour's.
func TestAUserThatGrowsLeavesItsNeighbourAlone(t *testing.T) {
	var d Decoder
	var ada, bob push.User
	read := func(into *push.User, u *push.User) {
		t.Helper()
		if err := d.Decode(Encode(nil, u, 7), 7, into); err != nil || !reflect.DeepEqual(into.Devices, u.Devices) {
			t.Fatalf("%v: %+v, want %+v", err, into.Devices, u.Devices)
		}
	}
	a, b := withDevices("a", 2, ""), withDevices("b", 2, "")
	a.Preferences.Types, b.Preferences.Types = []string{"x"}, []string{"y"}
	read(&ada, a)
	read(&bob, b)
	more := withDevices("a", 4, "")
	more.Preferences.Types = []string{"x", "z"}
	read(&ada, more)
	if !reflect.DeepEqual(bob.Devices, b.Devices) || !reflect.DeepEqual(bob.Preferences.Types, b.Preferences.Types) {
		t.Errorf("the neighbour has %+v and %q by now", bob.Devices, bob.Preferences.Types)
	}
}

// What a user had before is gone when its memory is used again.
func TestMemoryOfAUserThatIsReadAgainIsClean(t *testing.T) {
	var d Decoder
	full := withDevices("a", 3, "1.2")
	full.Devices[0].Locale = "de"
	full.Limits = []push.PersonalLimit{{Name: "hour", Max: 3}}
	full.Profile.Zone = "Europe/Berlin"
	full.Preferences = push.Preferences{Blocked: true, OptOutAll: true, Channels: []string{"push"}, Types: []string{"x"}, Senders: []string{"s"}, OptIns: []string{"o"},
		Quiet: []push.QuietHours{{From: 1, To: 2, Days: 1}}}
	for why, want := range map[string]*push.User{"one device": withDevices("b", 1, ""), "nothing": {}} {
		var u push.User
		for _, in := range []*push.User{full, want} {
			if err := d.Decode(Encode(nil, in, 7), 7, &u); err != nil {
				t.Fatal(err)
			}
		}
		var fresh push.User
		if err := d.Decode(Encode(nil, want, 7), 7, &fresh); err != nil {
			t.Fatal(err)
		}
		if len(u.Devices) != len(want.Devices) || len(u.Devices) > 0 && u.Devices[0] != want.Devices[0] || fmt.Sprint(u) != fmt.Sprint(fresh) {
			t.Errorf("%s: %+v, want %+v", why, u, fresh)
		}
	}
	// A record of another build, after one of this.
	var u push.User
	if err := d.Decode(Encode(nil, full, 7), 7, &u); err != nil {
		t.Fatal(err)
	}
	if err := d.Decode(Encode(nil, full, 6), 7, &u); err != nil || len(u.Devices) > 0 || u.Preferences.Blocked {
		t.Errorf("another build: %v, %+v", err, u)
	}
}

// A user with more than a piece is for has a list of its own.
func TestAUserLargerThanAPiece(t *testing.T) {
	var d Decoder
	for _, n := range []int{1, pieceLen/4 + 1, pieceLen, pieceLen + 1, 3, 1000} {
		want := withDevices("d", n, "")
		for i := range n {
			want.Preferences.Types = append(want.Preferences.Types, fmt.Sprint("type", i))
		}
		var u push.User
		if err := d.Decode(Encode(nil, want, 7), 7, &u); err != nil || !reflect.DeepEqual(u.Devices, want.Devices) || !reflect.DeepEqual(u.Preferences.Types, want.Preferences.Types) {
			t.Errorf("of %d: %d devices and %d types, %v", n, len(u.Devices), len(u.Preferences.Types), err)
		}
	}
}
