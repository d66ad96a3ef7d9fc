package client

import (
	"context"
	"net/http"
	"time"
)

// Preferences are what a user forbids and agrees to, over all apps. The zero ones forbid
// nothing. A list has at most 200 names, each of 1 to 64 bytes.
type Preferences struct {
	OptOutAll      bool         `json:"opt_out_all,omitempty"`      // nothing but what is critical
	OptOutChannels []string     `json:"opt_out_channels,omitempty"` // such as push
	OptOutTypes    []string     `json:"opt_out_types,omitempty"`    // of messages
	Blocked        bool         `json:"blocked,omitempty"`          // nothing at all, not even what is critical
	OptOutSenders  []string     `json:"opt_out_senders,omitempty"`
	OptInTypes     []string     `json:"opt_in_types,omitempty"`
	QuietHours     []QuietHours `json:"quiet_hours,omitempty"` // at most 20
}

// QuietHours are hours on the user's clock.
type QuietHours struct {
	From  string   `json:"from"`            // the first minute that is quiet, as 22:00
	To    string   `json:"to"`              // the first that is not, as 07:00; the next day's unless it is later than From
	Days  []string `json:"days,omitempty"`  // on which they begin, of mon, tue, wed, thu, fri, sat, sun; none = every day
	Types []string `json:"types,omitempty"` // of messages; none = all
}

// UserPreferences are those of a user, as workers see them.
type UserPreferences struct {
	UserID string `json:"user_id"`
	Preferences
	Unreadable bool `json:"unreadable"` // their latest record cannot be read: these are those before it, if any
}

// changed is the answer to a change of a user.
type changed struct {
	UserID string `json:"user_id"`
	Device string `json:"device"`
}

// UserPreferences reads what a user forbids; an unknown user forbids nothing. A change is seen
// some milliseconds after it was made. The key needs the right users, or is a token of the
// user. Where the gateway has no registry it is a *Problem with not_configured.
func (c *Client) UserPreferences(ctx context.Context, user string) (*UserPreferences, error) {
	return ask[UserPreferences](ctx, c, "reading preferences", &asking{method: http.MethodGet, path: at("/v1/users/{}/preferences", user)}, http.StatusOK)
}

// SetUserPreferences replaces all preferences of a user; zero ones remove them. They are
// durable when it returns. Keys are as of UserPreferences, and no registry is needed.
//
// Of two changes the later one stands, and what fails for now is sent again: so a repeat may
// undo what somebody else has set since the first attempt. Otherwise it does no harm.
func (c *Client) SetUserPreferences(ctx context.Context, user string, p Preferences) error {
	_, err := ask[changed](ctx, c, "setting preferences", &asking{method: http.MethodPut, path: at("/v1/users/{}/preferences", user), said: p}, http.StatusAccepted)
	return err
}

// Registration is a device to be registered.
type Registration struct {
	Platform    string `json:"platform"`              // apns or fcm
	Token       string `json:"token"`                 // at most 4,096 bytes
	App         string `json:"app,omitempty"`         // required, but with a token of the user, whose app is meant
	Environment string `json:"environment,omitempty"` // of apns: production or sandbox
	Locale      string `json:"locale,omitempty"`      // at most 35 bytes, as en-GB
	AppVersion  string `json:"app_version,omitempty"` // at most 64 bytes
	// RegisteredAt is when the app got the token; zero = when the gateway is asked. It is zero
	// with a token of the user.
	RegisteredAt time.Time `json:"registered_at,omitzero"`
}

// UserDevice is a registered device. Its token is never shown.
type UserDevice struct {
	Hash         string    `json:"hash"` // of the token; it names the device
	Platform     string    `json:"platform"`
	Environment  string    `json:"environment"`
	App          string    `json:"app"`
	Locale       string    `json:"locale"`
	AppVersion   string    `json:"app_version"`
	RegisteredAt time.Time `json:"registered_at"`
}

// UserDevices are those of a user, as workers see them.
type UserDevices struct {
	UserID     string       `json:"user_id"`
	Devices    []UserDevice `json:"devices"`
	Unreadable bool         `json:"unreadable"` // the latest record of a device, of whatever app, cannot be read
}

// UserDevices lists the devices of a user that are of the key's apps. Keys and problems are as
// of UserPreferences.
func (c *Client) UserDevices(ctx context.Context, user string) (*UserDevices, error) {
	return ask[UserDevices](ctx, c, "listing devices", &asking{method: http.MethodGet, path: at("/v1/users/{}/devices", user)}, http.StatusOK)
}

// UserDevice reads a device by its hash. A *Problem with no_such_device says that the user has
// none of it, or one of other apps than the key's; the rest is as of UserDevices.
func (c *Client) UserDevice(ctx context.Context, user, hash string) (*UserDevice, error) {
	return ask[UserDevice](ctx, c, "reading a device", &asking{method: http.MethodGet, path: at("/v1/users/{}/devices/{}", user, hash)}, http.StatusOK)
}

// RegisterDevice registers a device of a user, or refreshes it, and returns its hash. Who has
// registered a token last has it, whichever user that is. Of a user's devices the latest 100
// are kept, and 20 of one app, unless the registry is configured otherwise. Keys and repeats
// are as of SetUserPreferences; a key must be for the app.
func (c *Client) RegisterDevice(ctx context.Context, user string, r Registration) (hash string, err error) {
	answer, err := ask[changed](ctx, c, "registering a device", &asking{method: http.MethodPut, path: at("/v1/users/{}/devices", user), said: r}, http.StatusAccepted)
	if err != nil {
		return "", err
	}
	return answer.Device, nil
}

// RemoveDevice removes a device of a user by its hash. It is no error if there is none; one of
// other apps is a *Problem with no_such_device, as far as the gateway has a registry. Keys and
// repeats are as of SetUserPreferences: a repeat may remove what was registered meanwhile.
func (c *Client) RemoveDevice(ctx context.Context, user, hash string) error {
	_, err := ask[changed](ctx, c, "removing a device", &asking{method: http.MethodDelete, path: at("/v1/users/{}/devices/{}", user, hash)}, http.StatusAccepted)
	return err
}

// UserLimits are how limits stand for a user.
type UserLimits struct {
	UserID string      `json:"user_id"`
	App    string      `json:"app"`
	Type   string      `json:"type"`
	Limits []UserLimit `json:"limits"`
}

// UserLimit is how much of one rule a user has used.
type UserLimit struct {
	ServiceType string    `json:"service_type"`
	Rule        string    `json:"rule"`   // its name, as in the reason limited:NAME
	Per         string    `json:"per"`    // what it counts together: user, user_type, device_type or segment
	Device      string    `json:"device"` // hash of the token, of rules of devices
	Used        int       `json:"used"`
	Limit       int       `json:"limit"`
	Reached     bool      `json:"reached"`  // there is no room for one more now
	FreeAt      time.Time `json:"free_at"`  // of one that is reached: when there is, should nothing be added; zero = never
	ResetAt     time.Time `json:"reset_at"` // when nothing counts any more; zero = nothing does
	Meaning     string    `json:"meaning"`  // in words
}

// UserLimitsQuery says of which messages.
type UserLimitsQuery struct {
	App         string // that they are for; required
	Type        string // "" = default, as of messages that name none
	ServiceType string // "" = each
}

// UserLimits asks which limits a user has reached, and until when. Nothing is spent by it. Keys
// and problems are as of UserPreferences; a key must be for the app.
func (c *Client) UserLimits(ctx context.Context, user string, q UserLimitsQuery) (*UserLimits, error) {
	path := at("/v1/users/{}/limits", user) + query(map[string]string{"app": q.App, "type": q.Type, "service_type": q.ServiceType}, nil)
	return ask[UserLimits](ctx, c, "reading limits of a user", &asking{method: http.MethodGet, path: path}, http.StatusOK)
}

// UserToken lets the client of an app ask for its one user: it is the Key of its Options.
type UserToken struct {
	Token     string    `json:"token"`
	UserID    string    `json:"user_id"`
	App       string    `json:"app"`
	ExpiresAt time.Time `json:"expires_at"` // whole seconds
}

// MakeUserToken makes a token of a user for an app, by a key with the right users for it; a
// token of a user will not do. It is good for valid, a second to a day, rounded up to whole
// seconds; 0 = an hour. It ends sooner when the key is gone or changed. A repeat makes another
// token, which is harmless: the gateway keeps none, and each ends by itself.
func (c *Client) MakeUserToken(ctx context.Context, user, app string, valid time.Duration) (*UserToken, error) {
	said := struct {
		App       string `json:"app"`
		ExpiresIn int64  `json:"expires_in,omitempty"` // seconds
	}{app, int64((valid + time.Second - 1) / time.Second)}
	if valid < 0 {
		said.ExpiresIn = -1 // which is refused, where 0 would mean an hour
	}
	return ask[UserToken](ctx, c, "making a token of a user", &asking{method: http.MethodPost, path: at("/v1/users/{}/tokens", user), said: said}, http.StatusCreated)
}
