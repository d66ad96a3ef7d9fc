package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// errPart says that a record of the topic breaks a rule.
var errPart = errors.New("broken part of a user")

const partVersion = 1 // of all parts; preferences have a second

type devicePartJSON struct {
	V            int       `json:"v"`
	Platform     string    `json:"platform"`
	Environment  string    `json:"environment,omitempty"`
	App          string    `json:"app"`
	Token        string    `json:"token"`
	RegisteredAt time.Time `json:"registered_at"`
	Locale       string    `json:"locale,omitempty"`
	AppVersion   string    `json:"app_version,omitempty"`
}

// checkPartVersion looks at the version before anything else: one that is newer
// than the newest known may have changed every other field.
func checkPartVersion(value []byte, newest int) error {
	var head struct {
		V *int `json:"v"`
	}
	if err := json.Unmarshal(value, &head); err != nil {
		return errPart // the library's error may quote the content
	}
	if head.V != nil && (*head.V < partVersion || *head.V > newest) {
		return fmt.Errorf("part of a user: %w: %d", ErrVersion, *head.V)
	}
	return nil
}

// parsePart decodes a value whose version is usually a known one: only when
// that is not so, or it does not decode, is it looked at again.
func parsePart(value []byte, into any, version *int, newest int) error {
	*version = partVersion
	if err := json.Unmarshal(value, into); err != nil || *version < partVersion || *version > newest {
		if err := checkPartVersion(value, newest); err != nil {
			return err
		}
		return errPart
	}
	return nil
}

// parseDevice returns errForeign for a device whose platform is not known: then
// the rest of it was not looked at.
func parseDevice(value []byte, hash string, now time.Time) (push.Device, error) {
	var p devicePartJSON
	if err := parsePart(value, &p, &p.V, partVersion); err != nil {
		return push.Device{}, err
	}
	platform, known := push.ParsePlatform(p.Platform)
	if !known && p.Platform != "" {
		return push.Device{}, errForeign
	}
	d := push.Device{
		Platform: platform, Environment: p.Environment, App: p.App,
		Token: p.Token, Locale: p.Locale, AppVersion: p.AppVersion, RegisteredAt: p.RegisteredAt,
	}
	if err := CheckDevice(&d, now); err != nil {
		return push.Device{}, fmt.Errorf("%w: %w", errPart, err)
	}
	if d.Hash != hash {
		return push.Device{}, fmt.Errorf("%w: its key is of another token", errPart)
	}
	return d, nil
}

// DeviceValue is the value of the record that registers a checked device.
func DeviceValue(d *push.Device) ([]byte, error) {
	value, err := json.Marshal(devicePartJSON{
		V: partVersion, Platform: d.Platform.String(), Environment: d.Environment, App: d.App,
		Token: d.Token, RegisteredAt: d.RegisteredAt.UTC(), Locale: d.Locale, AppVersion: d.AppVersion,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding a device: %w", err)
	}
	return value, nil
}
