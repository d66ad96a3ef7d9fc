package forms

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users/record"
)

// What is wrong is told by field and rule, and without the token.
func TestDevices(t *testing.T) {
	now := time.Now()
	good := Device{UserID: "u42", Platform: "fcm", Token: "secret-token", App: "shop"}
	r, err := good.Registration(now)
	if err != nil || r.User != "u42" || r.Device.Platform != push.FCM || !r.Device.RegisteredAt.Equal(now) {
		t.Fatalf("%+v: %v", r, err)
	}
	good.RegisteredAt = "2026-11-21T10:00:00Z"
	if r, err := good.Registration(now); err != nil || r.Device.RegisteredAt.Hour() != 10 {
		t.Errorf("with a time: %+v: %v", r, err)
	}
	for _, tt := range []struct {
		why, field string
		change     func(d *Device)
	}{
		{"no user", "user", func(d *Device) { d.UserID = "" }},
		{"a long user", "user", func(d *Device) { d.UserID = strings.Repeat("u", 129) }},
		{"an unknown platform", "platform", func(d *Device) { d.Platform = "beep" }},
		{"a token of another platform", "token", func(d *Device) { d.Platform = "apns" }},
		{"no app", "app", func(d *Device) { d.App = "" }},
		{"an environment where there is none", "environment", func(d *Device) { d.Environment = "sandbox" }},
		{"a day", "registered_at", func(d *Device) { d.RegisteredAt = "2026-11-21" }},
		{"next week", "registered_at", func(d *Device) { d.RegisteredAt = now.Add(7 * 24 * time.Hour).Format(time.RFC3339) }},
		{"a long locale", "locale", func(d *Device) { d.Locale = strings.Repeat("l", 36) }},
		{"a control character", "app_version", func(d *Device) { d.AppVersion = "1\x00" }},
	} {
		d := good
		tt.change(&d)
		_, err := d.Registration(now)
		field, rule, ok := Fault(err)
		if !ok || field != tt.field || rule == "" || strings.Contains(err.Error(), "secret-token") {
			t.Errorf("%s: field %q, rule %q: %v", tt.why, field, rule, err)
		}
	}
	if _, _, ok := Fault(errors.New("Kafka is away")); ok {
		t.Error("another error is taken for one of a field")
	}
}

// Preferences come back as they went, by way of push and of JSON.
func TestPreferences(t *testing.T) {
	f := Preferences{OptOutAll: true, Channels: []string{"push"}, Types: []string{"promo", "news"}, Blocked: true, Senders: []string{"orders"}, OptIns: []string{"survey"},
		Quiet: []QuietHours{{From: "22:00", To: "07:00", Days: []string{"fri", "sat"}, Types: []string{"news"}}}}
	p, err := f.Preferences()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(OfPreferences(&p))
	if err != nil {
		t.Fatal(err)
	}
	var back Preferences
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("%+v became %+v: %v", f, back, err)
	}
	for _, tt := range []struct{ why, field, body string }{
		{"no time of day", "quiet_hours", `{"quiet_hours":[{"from":"24:00","to":"07:00"}]}`},
		{"no end", "quiet_hours", `{"quiet_hours":[{"from":"22:00"}]}`},
		{"no day", "quiet_hours", `{"quiet_hours":[{"from":"22:00","to":"07:00","days":["someday"]}]}`},
		{"an empty name", "opt_out_types", `{"opt_out_types":[""]}`},
		{"a long name", "opt_in_types", `{"opt_in_types":["` + strings.Repeat("x", 65) + `"]}`},
		{"many names", "opt_out_senders", `{"opt_out_senders":["x"` + strings.Repeat(`,"x"`, 200) + `]}`},
		{"many hours", "quiet_hours", `{"quiet_hours":[{"from":"22:00","to":"07:00"}` + strings.Repeat(`,{"from":"22:00","to":"07:00"}`, 20) + `]}`},
	} {
		var f Preferences
		if err := json.Unmarshal([]byte(tt.body), &f); err != nil {
			t.Fatal(err)
		}
		_, err := f.Preferences()
		if field, _, _ := Fault(err); field != tt.field || !errors.Is(err, record.ErrInvalid) {
			t.Errorf("%s: field %q: %v", tt.why, field, err)
		}
	}
	var nothing Preferences
	if p, err := nothing.Preferences(); err != nil || !reflect.DeepEqual(p, push.Preferences{}) {
		t.Errorf("of nothing becomes %+v: %v", p, err)
	}
}

// The lists of names are those of the structs' tags.
func TestFields(t *testing.T) {
	names := func(types ...reflect.Type) (all []string) {
		for _, typ := range types {
			for f := range typ.Fields() {
				all = append(all, f.Tag.Get("json"))
			}
		}
		return all
	}
	if got := names(reflect.TypeFor[Device]()); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(DeviceFields))) {
		t.Errorf("a device has %q", got)
	}
	if got := names(reflect.TypeFor[Preferences](), reflect.TypeFor[QuietHours]()); !slices.Equal(got, PreferencesFields) {
		t.Errorf("preferences have %q", got)
	}
}

// What encoding/json would let pass, and what is quoted of it: nothing that is not known.
func TestCheckNames(t *testing.T) {
	names := []string{"a", "b"}
	for text, says := range map[string]string{
		`{}`: "", `{"a": {"b": [{"a": 1}, {"a": 2}]}, "b": "a"}`: "", ` {"a": null} `: "",
		``: "want one JSON object, of a, b", `[]`: "want one", `{"a": 1`: "want one", `{"a": 1} {}`: "want one", `{"a": 1}x`: "want one", "\ufeff{}": "want one",
		`{"a": 1, "a": 2}`: "the member a is there twice", `{"a": 1, "b": 2, "a": 3}`: "the member a is there twice", `{"b": [{"a": 1, "\u0061": 2}]}`: "the member a is there twice",
		`{"A": 1}`: "a member that is not known; there are a, b", `{"secret": 1}`: "a member that is not known",
		`{"a":` + strings.Repeat("[", 7) + strings.Repeat("]", 7) + `}`: "", `{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`: "too deep",
	} {
		if got := CheckNames([]byte(text), names); (got == "") != (says == "") || !strings.Contains(got, says) || strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want %q", text, got, says)
		}
	}
}
