// Package forms is how devices and preferences of users are written where people and
// programs write them: in words, as files, flags, bodies of requests and answers have
// them. It turns these into the nouns of push, checked by the rules of users, and back. And it
// holds any such text to the names that it may have (CheckNames).
package forms

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users"
	"github.com/pushfleet/pushfleet/users/record"
)

// DeviceFields are the names of a Device's fields, of which the first four are needed.
var DeviceFields = []string{"user_id", "platform", "token", "app", "environment", "locale", "registered_at", "app_version"}

// Device is a device to be registered.
type Device struct {
	UserID       string `json:"user_id"`
	Platform     string `json:"platform"`
	Token        string `json:"token"`
	App          string `json:"app"`
	Environment  string `json:"environment"`
	Locale       string `json:"locale"`
	RegisteredAt string `json:"registered_at"` // RFC 3339
	AppVersion   string `json:"app_version"`
}

// Registration checks a device against every rule. One without a time was registered at.
// The error wraps record.ErrInvalid, names the field and quotes nothing of the device.
func (d *Device) Registration(at time.Time) (users.Registration, error) {
	platform, ok := push.ParsePlatform(d.Platform)
	if !ok {
		return users.Registration{}, fmt.Errorf("%w platform: neither %s", record.ErrInvalid, push.PlatformNames(" nor "))
	}
	if d.RegisteredAt != "" {
		t, err := time.Parse(time.RFC3339, d.RegisteredAt)
		if err != nil {
			return users.Registration{}, fmt.Errorf("%w registered_at: not RFC 3339, such as 2026-11-21T10:00:00Z", record.ErrInvalid)
		}
		at = t
	}
	r := users.Registration{User: d.UserID, Device: push.Device{Platform: platform, Environment: d.Environment,
		App: d.App, Token: d.Token, Locale: d.Locale, AppVersion: d.AppVersion, RegisteredAt: at}}
	return r, r.Check()
}

// Registered is a device as it is shown: by the hash of its token.
type Registered struct {
	Hash         string    `json:"hash"`
	Platform     string    `json:"platform"`
	Environment  string    `json:"environment"`
	App          string    `json:"app"`
	Locale       string    `json:"locale"`
	AppVersion   string    `json:"app_version"`
	RegisteredAt time.Time `json:"registered_at"`
}

// OfDevice shows a device.
func OfDevice(d *push.Device) Registered {
	return Registered{Hash: d.Hash, Platform: d.Platform.String(), Environment: d.Environment, App: d.App, Locale: d.Locale,
		AppVersion: d.AppVersion, RegisteredAt: d.RegisteredAt.UTC()}
}

// PreferencesFields are the names of all fields of Preferences, those of their quiet
// hours included.
var PreferencesFields = []string{"opt_out_all", "opt_out_channels", "opt_out_types", "blocked", "opt_out_senders", "opt_in_types", "quiet_hours", "from", "to", "days", "types"}

// Preferences are what a user forbids and agrees to.
type Preferences struct {
	OptOutAll bool         `json:"opt_out_all"`
	Channels  []string     `json:"opt_out_channels"`
	Types     []string     `json:"opt_out_types"`
	Blocked   bool         `json:"blocked"`
	Senders   []string     `json:"opt_out_senders"`
	OptIns    []string     `json:"opt_in_types"`
	Quiet     []QuietHours `json:"quiet_hours"`
}

// QuietText is quiet hours as operators write them: 22:00-07:00 days=fri,sat types=news.
func QuietText(q push.QuietHours) string {
	text := q.From.String() + "-" + q.To.String()
	if q.Days != 0 {
		text += " days=" + strings.Join(q.Days.Names(), ",")
	}
	if len(q.Types) > 0 {
		text += " types=" + strings.Join(q.Types, ",")
	}
	return text
}

// QuietHours are hours on the user's clock, as they stand in push.users.
type QuietHours struct {
	From  string   `json:"from"`
	To    string   `json:"to"`
	Days  []string `json:"days"`
	Types []string `json:"types"`
}

// OfPreferences shows preferences; its lists are never nil.
func OfPreferences(p *push.Preferences) Preferences {
	list := func(names []string) []string { return append([]string{}, names...) }
	f := Preferences{OptOutAll: p.OptOutAll, Channels: list(p.Channels), Types: list(p.Types), Blocked: p.Blocked,
		Senders: list(p.Senders), OptIns: list(p.OptIns), Quiet: []QuietHours{}}
	for _, q := range p.Quiet {
		f.Quiet = append(f.Quiet, QuietHours{From: q.From.String(), To: q.To.String(), Days: list(q.Days.Names()), Types: list(q.Types)})
	}
	return f
}

// Preferences checks them against every rule. The error wraps record.ErrInvalid, names
// the field and quotes nothing.
func (f *Preferences) Preferences() (push.Preferences, error) {
	p := push.Preferences{Blocked: f.Blocked, OptOutAll: f.OptOutAll, Channels: f.Channels, Types: f.Types, Senders: f.Senders, OptIns: f.OptIns}
	for _, h := range f.Quiet {
		from, ok := push.ParseClock(h.From)
		to, also := push.ParseClock(h.To)
		if !ok || !also {
			return push.Preferences{}, fmt.Errorf("%w quiet_hours: want from and to as two times from 00:00 to 23:59", record.ErrInvalid)
		}
		days, ok := push.ParseWeekdays(h.Days)
		if !ok {
			return push.Preferences{}, fmt.Errorf("%w quiet_hours: days are some of mon, tue, wed, thu, fri, sat and sun", record.ErrInvalid)
		}
		p.Quiet = append(p.Quiet, push.QuietHours{From: from, To: to, Days: days, Types: h.Types})
	}
	return p, record.CheckPreferences(&p)
}

// Fault takes an error apart that wraps record.ErrInvalid: which field, and what is wrong
// with it. ok is false for every other error.
func Fault(err error) (field, rule string, ok bool) {
	if !errors.Is(err, record.ErrInvalid) {
		return "", "", false
	}
	_, text, _ := strings.Cut(err.Error(), record.ErrInvalid.Error()+" ")
	field, rule, _ = strings.Cut(text, ": ")
	return field, rule, true
}
