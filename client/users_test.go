package client

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/userstest"
)

// people are push.users and the registry behind it, in memory: what is appended is seen at
// once.
type people struct {
	mu    sync.Mutex
	users userstest.Merged // guarded by mu
}

// Append implements users.Log.
func (p *people) Append(_ context.Context, records []users.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.users.Apply(records)
}

// Stored implements gateway.Registry.
func (p *people) Stored(_ context.Context, user string) (users.Stored, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.users.Stored(user), nil
}

// Preferences implements gateway.Registry.
func (p *people) Preferences(ctx context.Context, user string) (push.Preferences, error) {
	s, err := p.Stored(ctx, user)
	return s.Preferences, err
}

// uses are limits of users, and what was asked of them last.
type uses struct {
	mu    sync.Mutex
	of    []gateway.LimitUse // guarded by mu
	asked []string           // guarded by mu; user, app, type, lanes
}

// Uses implements gateway.UserLimits.
func (u *uses) Uses(_ context.Context, user, app, messageType string, lanes []string) ([][]gateway.LimitUse, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append([]string{user, app, messageType}, lanes...)
	return [][]gateway.LimitUse{u.of}, nil
}

// peopleWorld has a registry. The key has the right users.
func peopleWorld(t *testing.T) (*world, *people, *uses) {
	t.Helper()
	p, u := &people{users: userstest.Merged{}}, &uses{}
	changes := gateway.NewUsers(p, p)
	w := newWorld(t, func(o *gateway.Options) {
		o.Users, o.UserLimits, o.Callers, o.Times.Confirm = changes, u, callersWith(t, gateway.Manage), 5*time.Second
	})
	t.Cleanup(changes.Close)
	return w, p, u
}

// only makes a call that returns an error alone as twice wants it.
func only(call func() error) func() (struct{}, error) {
	return func() (struct{}, error) { return struct{}{}, call() }
}

// Preferences come back as they were set, whatever the user is called, and replace all that
// there were.
func TestUserPreferences(t *testing.T) {
	w, p, _ := peopleWorld(t)
	all := Preferences{OptOutAll: true, OptOutChannels: []string{"push"}, OptOutTypes: []string{"promo"}, Blocked: true, OptOutSenders: []string{"orders"}, OptInTypes: []string{"survey"},
		QuietHours: []QuietHours{{From: "22:00", To: "07:00", Days: []string{"fri", "sat"}, Types: []string{"news"}}}}
	for _, user := range []string{"a/ü ?", "..", "."} {
		twice(w, only(func() error { return w.client.SetUserPreferences(t.Context(), user, all) }))
		w.reads(&changed{})
		got := twice(w, func() (*UserPreferences, error) { return w.client.UserPreferences(t.Context(), user) })
		if want := (&UserPreferences{UserID: user, Preferences: all}); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	p.mu.Lock()
	p.users[".."].Quarantine = push.PreferencesBroken
	p.mu.Unlock()
	if got, err := w.client.UserPreferences(t.Context(), ".."); err != nil || !got.Unreadable {
		t.Errorf("that cannot be read: %+v, %v", got, err)
	}
	if err := w.client.SetUserPreferences(t.Context(), ".", Preferences{}); err != nil || w.wire.sent[len(w.wire.sent)-1] != "PUT /v1/users/%2E/preferences application/json {}" {
		t.Errorf("%q, %v", w.wire.sent, err)
	}
	if got, err := w.client.UserPreferences(t.Context(), "."); err != nil || got.Blocked || len(got.QuietHours) > 0 {
		t.Errorf("removed: %+v, %v", got, err)
	}
	w.refuses([]refusal{
		{"hours that are none", "invalid_field", func() error {
			return w.client.SetUserPreferences(t.Context(), "u", Preferences{QuietHours: []QuietHours{{From: "24:00", To: "07:00"}}})
		}},
		{"a user that cannot be", "invalid_field", func() error { return failed(w.client.UserPreferences(t.Context(), strings.Repeat("u", 129))) }},
		{"no user", "not_found", func() error { return w.client.SetUserPreferences(t.Context(), "", Preferences{}) }},
	})
}

// A device is registered by its token, and listed, read and removed by its hash. No error has
// the token in it.
func TestUserDevices(t *testing.T) {
	w, _, _ := peopleWorld(t)
	at := time.Now().Add(-time.Hour).UTC().Truncate(time.Millisecond)
	phone := Registration{Platform: "apns", Token: strings.Repeat("ab", 32), App: "shop", Environment: "sandbox", Locale: "en-GB", AppVersion: "12.4.1", RegisteredAt: at}
	hash := twice(w, func() (string, error) { return w.client.RegisterDevice(t.Context(), "a/ü", phone) })
	w.reads(&changed{})
	if hash != push.DeviceHash(push.APNS, phone.Token) {
		t.Errorf("hash %q", hash)
	}
	want := UserDevice{Hash: hash, Platform: "apns", Environment: "sandbox", App: "shop", Locale: "en-GB", AppVersion: "12.4.1", RegisteredAt: at}
	if got := twice(w, func() (*UserDevice, error) { return w.client.UserDevice(t.Context(), "a/ü", hash) }); *got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	list := twice(w, func() (*UserDevices, error) { return w.client.UserDevices(t.Context(), "a/ü") })
	if !reflect.DeepEqual(list, &UserDevices{UserID: "a/ü", Devices: []UserDevice{want}}) {
		t.Errorf("%+v, want %+v", list, want)
	}
	twice(w, only(func() error { return w.client.RemoveDevice(t.Context(), "a/ü", hash) }))
	w.reads(&changed{})
	if list, err := w.client.UserDevices(t.Context(), "a/ü"); err != nil || len(list.Devices) > 0 {
		t.Errorf("removed: %+v, %v", list, err)
	}
	register := func(r Registration) func() error {
		return func() error {
			_, err := w.client.RegisterDevice(t.Context(), "u", r)
			if err == nil || strings.Contains(err.Error(), r.Token) {
				t.Errorf("%v", err)
			}
			return err
		}
	}
	w.refuses([]refusal{
		{"an app that is not the key's", "foreign_app", register(Registration{Platform: "fcm", Token: "secret-token", App: "bank"})},
		{"a platform that is none", "invalid_field", register(Registration{Platform: "beep", Token: "secret-token", App: "shop"})},
		{"a device that there is not", "no_such_device", func() error { return failed(w.client.UserDevice(t.Context(), "a/ü", hash)) }},
		{"a hash that is none", "invalid_field", func() error { return w.client.RemoveDevice(t.Context(), "a/ü", "x") }},
		{"devices of nobody", "not_found", func() error { return failed(w.client.UserDevices(t.Context(), "")) }},
	})
}

func TestUserLimits(t *testing.T) {
	w, _, u := peopleWorld(t)
	free := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	u.mu.Lock()
	u.of = []gateway.LimitUse{{Rule: "per-day", Per: "device_type", Device: "q83vASNFZ4mrze8B", Used: 5, Limit: 6, FreeAt: free, ResetAt: free.Add(time.Hour)}}
	u.mu.Unlock()
	got := twice(w, func() (*UserLimits, error) {
		return w.client.UserLimits(t.Context(), "a/ü", UserLimitsQuery{App: "shop", Type: "news", ServiceType: "transactional"})
	})
	want := &UserLimits{UserID: "a/ü", App: "shop", Type: "news", Limits: []UserLimit{{ServiceType: "transactional", Rule: "per-day", Per: "device_type", Device: "q83vASNFZ4mrze8B",
		Used: 5, Limit: 6, Reached: true, FreeAt: free, ResetAt: free.Add(time.Hour), Meaning: "reached: 5 of 6, free again at " + free.Format(time.RFC3339)}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	u.mu.Lock()
	if !slices.Equal(u.asked, []string{"a/ü", "shop", "news", "transactional"}) {
		t.Errorf("asked %q", u.asked)
	}
	u.mu.Unlock()
	if got, err := w.client.UserLimits(t.Context(), "u", UserLimitsQuery{App: "shop"}); err != nil || got.Type != "default" {
		t.Errorf("of no type: %+v, %v", got, err)
	}
	w.refuses([]refusal{
		{"no app", "invalid_field", func() error { return failed(w.client.UserLimits(t.Context(), "u", UserLimitsQuery{})) }},
		{"another app", "foreign_app", func() error { return failed(w.client.UserLimits(t.Context(), "u", UserLimitsQuery{App: "bank"})) }},
		{"a service type that there is not", "invalid_field", func() error {
			return failed(w.client.UserLimits(t.Context(), "u", UserLimitsQuery{App: "shop", ServiceType: "mail"}))
		}},
	})
}

// By a token an app's client asks for its one user, and for no other.
func TestMakeUserToken(t *testing.T) {
	w, _, _ := peopleWorld(t)
	began := time.Now()
	made := twice(w, func() (*UserToken, error) {
		return w.client.MakeUserToken(t.Context(), "a/ü", "shop", 90*time.Second+time.Millisecond)
	})
	if want := (UserToken{Token: made.Token, UserID: "a/ü", App: "shop", ExpiresAt: made.ExpiresAt}); *made != want || made.ExpiresAt.Before(began) {
		t.Errorf("%+v, want %+v", made, want)
	}
	for _, tt := range []struct {
		why   string
		valid time.Duration
		body  string
	}{
		{"not said", 0, `{"app":"shop"}`},
		{"rounded up", 90*time.Second + time.Millisecond, `{"app":"shop","expires_in":91}`},
		{"less than a second", 1, `{"app":"shop","expires_in":1}`},
		{"a day", 24 * time.Hour, `{"app":"shop","expires_in":86400}`},
	} {
		w.wire.sent = nil
		if _, err := w.client.MakeUserToken(t.Context(), "a/ü", "shop", tt.valid); err != nil || !slices.Equal(w.wire.sent, []string{"POST /v1/users/a%2F%C3%BC/tokens application/json " + tt.body}) {
			t.Errorf("%s: %q, %v", tt.why, w.wire.sent, err)
		}
	}
	theirs, err := New(Options{URL: w.client.base, Key: made.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(theirs.Close)
	if got, err := theirs.UserPreferences(t.Context(), "a/ü"); err != nil || got.UserID != "a/ü" {
		t.Errorf("by the token: %+v, %v", got, err)
	}
	token := func(c *Client, user, app string, valid time.Duration) func() error {
		return func() error {
			err := failed(c.MakeUserToken(t.Context(), user, app, valid))
			if err == nil || strings.Contains(err.Error(), made.Token) {
				t.Errorf("%v", err)
			}
			return err
		}
	}
	w.refuses([]refusal{
		{"another user", "foreign_user", func() error { return failed(theirs.UserPreferences(t.Context(), "u")) }},
		{"a token by a token", "forbidden", token(theirs, "a/ü", "shop", 0)},
		{"another app", "foreign_app", token(w.client, "u", "bank", 0)},
		{"more than a day", "invalid_field", token(w.client, "u", "shop", 24*time.Hour+1)},
		{"a time that is over", "invalid_field", token(w.client, "u", "shop", -time.Nanosecond)},
	})
}

// By a link a user opts out of a type, without a key.
func TestUnsubscribeLink(t *testing.T) {
	w, _, _ := peopleWorld(t)
	path, err := w.client.UnsubscribeLink(t.Context(), "a/ü", "shop", "news")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(w.client.base+path, "application/x-www-form-urlencoded", strings.NewReader("List-Unsubscribe=One-Click"))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if p, err := w.client.UserPreferences(t.Context(), "a/ü"); answer.StatusCode != http.StatusOK || err != nil || !slices.Equal(p.OptOutTypes, []string{"news"}) {
		t.Errorf("%d, then %+v, %v", answer.StatusCode, p, err)
	}
	w.refuses([]refusal{
		{"another app", "foreign_app", func() error { return failed(w.client.UnsubscribeLink(t.Context(), "u", "bank", "news")) }},
		{"no type", "invalid_field", func() error { return failed(w.client.UnsubscribeLink(t.Context(), "u", "shop", "")) }},
	})
}
