package pipeline

import "time"

// Device is one registered device of a user.
type Device struct {
	Platform     Platform
	Environment  string // Production or Sandbox for APNs, empty for FCM
	App          string
	Token        string
	Hash         string // DeviceHash(Platform, Token): what the status table and logs know it by
	Locale       string
	RegisteredAt time.Time
}

// User is what the registry knows of a user: one packed record in Redis feeds
// preferences, limits and the device look-up.
type User struct {
	Devices     []Device
	Preferences Preferences
	// Limiter is the user's packed limiter state as it was read together with
	// the record; nil when there is none. Only package limits reads it.
	Limiter []byte
}

// Preferences are a user's opt-outs.
type Preferences struct {
	OptOutAll bool
	Channels  []string // opted out of these channels; "push" is ours
	Types     []string // opted out of these message types
}

// ChannelPush is the name of this fleet's channel in a user's preferences.
const ChannelPush = "push"

// OptedOut reports whether a message of this type may not be pushed to the
// user, and the reason code for its status row.
func (p *Preferences) OptedOut(messageType string) (Reason, bool) {
	if p.OptOutAll {
		return OptedOutAll, true
	}
	for _, c := range p.Channels {
		if c == ChannelPush {
			return OptedOutChannel, true
		}
	}
	for _, t := range p.Types {
		if t == messageType {
			return OptedOutType, true
		}
	}
	return "", false
}
