package users

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/users/record"
)

// Client changes users, by appending to push.users. A change shows in Redis
// when a registry has applied it, usually within milliseconds. It is safe for
// concurrent use.
type Client struct {
	log Log
}

// NewClient makes a client that appends to log, which stays the caller's.
func NewClient(log Log) *Client { return &Client{log: log} }

// Registration is one device to be registered for a user.
type Registration struct {
	User   string
	Device push.Device // Hash is ignored; Environment defaults to its platform's first
}

// RegisterDevice registers, or refreshes, a device of a user and returns its
// hash. RegisteredAt is set by the caller, because imports bring their own:
// whoever registered a token last owns it.
//
// The error wraps record.ErrInvalid when the input breaks a rule: user of 1 to 128
// bytes, app of 1 to 64, locale of at most 35, app version of at most 64, the token grammar of its
// platform, an environment only where it has some, a time from 1970 up to a day from
// now.
// Otherwise it is the log's, and the change may or may not be there.
func (c *Client) RegisterDevice(ctx context.Context, user string, d push.Device) (hash string, err error) {
	hashes, err := c.RegisterDevices(ctx, []Registration{{User: user, Device: d}})
	if err != nil {
		return "", err
	}
	return hashes[0], nil
}

// RegisterDevices registers many devices in one append. When one is refused,
// none is registered, and the error gives its index in the list.
func (c *Client) RegisterDevices(ctx context.Context, list []Registration) (hashes []string, err error) {
	records := make([]Record, len(list))
	hashes = make([]string, len(list))
	for i := range list {
		d := list[i].Device
		if err := checkRegistration(list[i].User, &d); err != nil {
			return nil, fmt.Errorf("registering device %d of %d: %w", i+1, len(list), err)
		}
		value, err := record.DeviceValue(&d)
		if err != nil {
			return nil, err
		}
		records[i] = Record{Key: record.DeviceKey(list[i].User, d.Hash), Value: value}
		hashes[i] = d.Hash
	}
	if err := c.log.Append(ctx, records); err != nil {
		return nil, fmt.Errorf("registering devices: %w", err)
	}
	return hashes, nil
}

// Check reports, without appending anything, whether RegisterDevice would
// refuse it; the error wraps record.ErrInvalid.
func (r Registration) Check() error { return checkRegistration(r.User, &r.Device) }

func checkRegistration(user string, d *push.Device) error {
	if err := record.CheckUser(user); err != nil {
		return err
	}
	return record.CheckDevice(d, time.Now())
}

// RemoveDevice removes a device by its hash (push.DeviceHash). Removing what is
// not there is no error. The error wraps record.ErrInvalid for an invalid user or
// hash, or is the log's.
func (c *Client) RemoveDevice(ctx context.Context, user, hash string) error {
	if err := record.CheckUser(user); err != nil {
		return fmt.Errorf("removing a device: %w", err)
	}
	if err := record.CheckHash(hash); err != nil {
		return fmt.Errorf("removing a device: %w", err)
	}
	if err := c.log.Append(ctx, []Record{{Key: record.DeviceKey(user, hash)}}); err != nil {
		return fmt.Errorf("removing a device: %w", err)
	}
	return nil
}

// SetPreferences replaces all preferences of a user; the zero value removes
// them. At most 200 channels, types, senders and opt-ins of 1 to 64 bytes each,
// 20 quiet hours with 200 types together; the error wraps record.ErrInvalid
// otherwise, or is the log's. A registry of before these were more than channels
// and types cannot read preferences that use the rest, and says so.
func (c *Client) SetPreferences(ctx context.Context, user string, p push.Preferences) error {
	return c.set(ctx, "preferences", user, record.PreferencesPart, func() ([]byte, error) {
		if err := record.CheckPreferences(&p); err != nil {
			return nil, err
		}
		return record.PreferencesValue(&p)
	})
}

// SetProfile replaces the profile of a user; the zero value removes it. The error
// wraps record.ErrInvalid when a field breaks a rule: a locale of at most 35 bytes, a
// time zone of the database, a country of two capital letters, a last activity from
// 1970 up to a day from now. Otherwise it is the log's.
func (c *Client) SetProfile(ctx context.Context, user string, p push.Profile) error {
	return c.set(ctx, "a profile", user, record.ProfilePart, func() ([]byte, error) {
		if err := record.CheckProfile(&p, time.Now()); err != nil {
			return nil, err
		}
		return record.ProfileValue(&p)
	})
}

// SetLimits replaces all personal limits of a user; none removes them. At most 100,
// of different names of 1 to 64 bytes, each from 1 to 4096; the error wraps
// record.ErrInvalid otherwise, or is the log's.
func (c *Client) SetLimits(ctx context.Context, user string, limits []push.PersonalLimit) error {
	return c.set(ctx, "personal limits", user, record.LimitsPart, func() ([]byte, error) {
		limits := slices.Clone(limits) // to be sorted
		if err := record.CheckLimits(limits); err != nil {
			return nil, err
		}
		return record.LimitsValue(limits)
	})
}

// set writes a part of which a user has one; what names it in errors.
func (c *Client) set(ctx context.Context, what, user string, part record.Part, value func() ([]byte, error)) error {
	err := record.CheckUser(user)
	if err != nil {
		return fmt.Errorf("setting %s: %w", what, err)
	}
	r := Record{Key: record.Key(user, part)}
	if r.Value, err = value(); err != nil {
		return fmt.Errorf("setting %s: %w", what, err)
	}
	if err := c.log.Append(ctx, []Record{r}); err != nil {
		return fmt.Errorf("setting %s: %w", what, err)
	}
	return nil
}
