package users_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
	"github.com/pushfleet/pushfleet/users/userstest"
)

func TestRegisterDeviceRefuses(t *testing.T) {
	good := users.Registration{User: "ada", Device: push.Device{
		Platform: push.APNS, App: "shop", Token: strings.Repeat("aF", 32), RegisteredAt: userstest.Epoch,
	}}
	fcm := func(r *users.Registration, token string) { r.Device.Platform, r.Device.Token = push.FCM, token }
	for _, tt := range []struct {
		name   string
		change func(r *users.Registration)
		ok     bool
	}{
		{"as it is", func(*users.Registration) {}, true},
		{"user with a slash", func(r *users.Registration) { r.User = "a/b/" }, true},
		{"no user", func(r *users.Registration) { r.User = "" }, false},
		{"user of 128 bytes", func(r *users.Registration) { r.User = strings.Repeat("u", 128) }, true},
		{"user of 129 bytes", func(r *users.Registration) { r.User = strings.Repeat("u", 129) }, false},
		{"line feed in the user", func(r *users.Registration) { r.User = "a\nb" }, false},
		{"user not UTF-8", func(r *users.Registration) { r.User = "\xff" }, false},
		{"no platform", func(r *users.Registration) { r.Device.Platform = push.NoPlatform }, false},
		{"short APNs token", func(r *users.Registration) { r.Device.Token = strings.Repeat("a", 62) }, false},
		{"odd APNs token", func(r *users.Registration) { r.Device.Token = strings.Repeat("a", 65) }, false},
		{"APNs token of 512", func(r *users.Registration) { r.Device.Token = strings.Repeat("a", 512) }, true},
		{"APNs token of 514", func(r *users.Registration) { r.Device.Token = strings.Repeat("a", 514) }, false},
		{"APNs token not hexadecimal", func(r *users.Registration) { r.Device.Token = strings.Repeat("a", 63) + "/" }, false},
		{"FCM token", func(r *users.Registration) { fcm(r, "aZ09_:%-") }, true},
		{"FCM token of 4097", func(r *users.Registration) { fcm(r, strings.Repeat("a", 4097)) }, false},
		{"FCM token with a slash", func(r *users.Registration) { fcm(r, "a/b") }, false},
		{"FCM token with CR", func(r *users.Registration) { fcm(r, "a\r\nb") }, false},
		{"FCM with an environment", func(r *users.Registration) { fcm(r, "a"); r.Device.Environment = push.Sandbox }, false},
		{"unknown environment", func(r *users.Registration) { r.Device.Environment = "test" }, false},
		{"no app", func(r *users.Registration) { r.Device.App = "" }, false},
		{"long locale", func(r *users.Registration) { r.Device.Locale = strings.Repeat("e", 36) }, false},
		{"no time", func(r *users.Registration) { r.Device.RegisteredAt = time.Time{} }, false},
		{"year 10000", func(r *users.Registration) { r.Device.RegisteredAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, false},
	} {
		r := good
		tt.change(&r)
		topic := userstest.NewTopic(1)
		_, err := users.NewClient(topic).RegisterDevice(context.Background(), r.User, r.Device)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%s: error %v", tt.name, err)
		}
		if err != nil && strings.Contains(err.Error(), r.Device.Token) && r.Device.Token != "a" {
			t.Errorf("%s: the error shows the token", tt.name)
		}
		if written := topic.Ends()[0] > 0; written != tt.ok {
			t.Errorf("%s: written = %v", tt.name, written)
		}
		if err := r.Check(); (err == nil) != tt.ok {
			t.Errorf("%s: Check says %v", tt.name, err)
		}
	}
}

func TestClientWritesWhatTheTopicIsReadAs(t *testing.T) {
	ctx, topic := context.Background(), userstest.NewTopic(2)
	c := users.NewClient(topic)
	token := strings.Repeat("AB", 32)
	h, err := c.RegisterDevice(ctx, "a/b", push.Device{Platform: push.APNS, App: "shop", Token: token, Locale: "de", AppVersion: "7.1", RegisteredAt: userstest.Epoch.Add(1234567)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetPreferences(ctx, "a/b", push.Preferences{OptOutAll: true, Channels: []string{"push"}}); err != nil {
		t.Fatal(err)
	}
	profile := push.Profile{Zone: "Asia/Kathmandu", Country: "NP", HasNumber: true}
	limits := []push.PersonalLimit{{Name: "promo", Max: 3}, {Name: "all", Max: 9}}
	if err := errors.Join(c.SetProfile(ctx, "a/b", profile), c.SetLimits(ctx, "a/b", limits)); err != nil {
		t.Fatal(err)
	}
	if limits[0].Name != "promo" {
		t.Error("the caller's limits were sorted")
	}
	u := topic.Merge()["a/b"]
	if u == nil || len(u.Devices) != 1 || !u.Preferences.OptOutAll || u.Profile != profile || len(u.Limits) != 2 || u.Limits[0].Name != "all" {
		t.Fatalf("the topic says %+v", u)
	}
	want := push.Device{
		Platform: push.APNS, Environment: push.Production, App: "shop", Token: token, Locale: "de", AppVersion: "7.1",
		Hash: push.DeviceHash(push.APNS, token), RegisteredAt: userstest.Epoch.Add(time.Millisecond),
	}
	if u.Devices[0] != want || h != want.Hash {
		t.Errorf("device %+v\nwant   %+v", u.Devices[0], want)
	}
	// The zero preferences and a removal leave nothing behind.
	if err := errors.Join(c.SetPreferences(ctx, "a/b", push.Preferences{}), c.SetProfile(ctx, "a/b", push.Profile{}), c.SetLimits(ctx, "a/b", nil), c.RemoveDevice(ctx, "a/b", h)); err != nil {
		t.Fatal(err)
	}
	if left := topic.Merge(); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	if err := c.RemoveDevice(ctx, "", h); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("removing a device of nobody: %v", err)
	}
	if err := c.RemoveDevice(ctx, "a/b", "not a hash"); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("removing what is no hash: %v", err)
	}
	if err := c.SetPreferences(ctx, "a/b", push.Preferences{Types: []string{""}}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("an empty type: %v", err)
	}
	if err := c.SetProfile(ctx, "a/b", push.Profile{Zone: "Mars/Olympus_Mons"}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("an unknown zone: %v", err)
	}
	if err := c.SetLimits(ctx, "a/b", []push.PersonalLimit{{Name: "promo"}}); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("a limit of 0: %v", err)
	}
	if err := c.SetLimits(ctx, "", nil); !errors.Is(err, record.ErrInvalid) {
		t.Errorf("limits of nobody: %v", err)
	}
}

// full is a log that takes nothing.
type full struct{}

var errFull = errors.New("the disk is full")

func (full) Append(context.Context, []users.Record) error { return errFull }

// What the log has not taken was not said: whoever says it hears that.
func TestClientSaysWhatWasNotWritten(t *testing.T) {
	c, ctx := users.NewClient(full{}), t.Context()
	d := push.Device{Platform: push.FCM, App: "shop", Token: "t", RegisteredAt: userstest.Epoch}
	for what, do := range map[string]func() error{
		"a device": func() error { _, err := c.RegisterDevice(ctx, "ada", d); return err },
		"devices": func() error {
			_, err := c.RegisterDevices(ctx, []users.Registration{{User: "ada", Device: d}})
			return err
		},
		"a removal":       func() error { return c.RemoveDevice(ctx, "ada", userstest.Hash(1)) },
		"preferences":     func() error { return c.SetPreferences(ctx, "ada", push.Preferences{Blocked: true}) },
		"no preferences":  func() error { return c.SetPreferences(ctx, "ada", push.Preferences{}) },
		"a profile":       func() error { return c.SetProfile(ctx, "ada", push.Profile{Country: "NP"}) },
		"personal limits": func() error { return c.SetLimits(ctx, "ada", nil) },
	} {
		if err := do(); !errors.Is(err, errFull) {
			t.Errorf("%s: %v, want %v", what, err, errFull)
		}
	}
}

// Of many registrations the one that is refused is named, and none is written.
func TestTheRefusedOfManyIsNamed(t *testing.T) {
	topic := userstest.NewTopic(1)
	d := push.Device{Platform: push.FCM, App: "shop", Token: "t", RegisteredAt: userstest.Epoch}
	hashes, err := users.NewClient(topic).RegisterDevices(t.Context(), []users.Registration{{User: "ada", Device: d}, {User: "", Device: d}, {User: "cy", Device: d}})
	if !errors.Is(err, record.ErrInvalid) || !strings.Contains(err.Error(), "2 of 3") || hashes != nil || topic.Ends()[0] > 0 {
		t.Errorf("%q, %v; %d records are written", hashes, err, topic.Ends()[0])
	}
}

func TestPartitionKeyIsTheUser(t *testing.T) {
	for key, want := range map[string]string{
		record.PreferencesKey("u42"):                "u42",
		record.DeviceKey("u42", "0123456789abcdef"): "u42",
		record.PreferencesKey("a/b/"):               "a/b/",
		"no slash":                                  "no slash",
		"/prefs":                                    "", // nobody's, and refused where it is read
	} {
		if got := string(users.PartitionKey([]byte(key))); got != want {
			t.Errorf("PartitionKey(%q) = %q, want %q", key, got, want)
		}
	}
}
