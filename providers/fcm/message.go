package fcm

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/providers/payload"
	"github.com/pushfleet/pushfleet/push"
)

// FromMessage reads a *messaging.Message of firebase.google.com/go/v4 as a
// message for its one device: fields where ours has them, and raw overrides
// for all the rest, so that what is sent is what Firebase's client would send.
// It is taken as the json.Marshaler that it is, because the SDK's packages
// would add more than half to the worker's size; any other message in the form
// of FCM's REST interface, with names_like_this, will do.
//
// The caller sets App, and ID unless data has a pf_id, which then is the id.
// A time to live becomes an expiry counted from now; 0, now or never, stays a
// raw override. Without a priority ours is Google's default: high for what is
// shown, normal for data alone. Unlike all else that a message says to Android
// alone, both count for devices of Apple's and browsers too, where their parts
// do not say otherwise; and data alone wakes Apple's apps (content-available).
//
// A message for a topic, a condition, an installation id or a live activity is
// an error, and one without a token. Errors repeat nothing of the message.
func FromMessage(message json.Marshaler, now time.Time) (push.Message, error) {
	m, err := fromMessage(message, now)
	if err != nil {
		return push.Message{}, fmt.Errorf("reading message: %w", err)
	}
	return m, nil
}

func fromMessage(message json.Marshaler, now time.Time) (push.Message, error) {
	m := push.Message{Type: "default", PushType: "alert"}
	raw, err := json.Marshal(message)
	if err != nil {
		return m, errors.New("it does not encode as JSON") // the error may quote it
	}
	var rest payload.Object
	if json.Unmarshal(raw, &rest) != nil || rest == nil {
		return m, errors.New("it is not a JSON object")
	}
	for _, target := range [...]string{"topic", "condition", "fid"} {
		if _, has := rest[target]; has {
			return m, fmt.Errorf("it is for a %s; a delivery is for one device's token", target)
		}
	}
	if _, has := rest.Inner("apns")["live_activity_token"]; has {
		return m, errors.New("it is for a live activity; a delivery is for one device's token")
	}
	if m.Device = (push.Target{Platform: push.FCM, Token: rest.Take("token")}); m.Device.Token == "" {
		return m, errors.New("it has no token")
	}
	if err := readData(&m, rest); err != nil {
		return m, err
	}
	shown := false
	if n := rest.Inner("notification"); hasText(n) {
		m.Title, m.Body, m.Image = n.Take("title"), n.Take("body"), n.Take("image")
		if err := rest.Put("notification", n); err != nil {
			return m, err
		}
		shown = true
	}
	if err := readAndroid(&m, rest, shown, now); err != nil {
		return m, err
	}
	if !shown {
		m.PushType = "background" // as the decoder has it where there is no text
	}
	if len(rest) > 0 {
		if m.FCM, err = json.Marshal(rest); err != nil {
			return m, fmt.Errorf("encoding the remaining fields: %w", err)
		}
	}
	return m, nil
}

// hasText reports whether a notification has a title or a body: an image alone
// stays a raw override.
func hasText(n payload.Object) bool {
	for _, key := range [...]string{"title", "body"} {
		var s string
		if json.Unmarshal(n[key], &s) == nil && s != "" {
			return true
		}
	}
	return false
}

func readData(m *push.Message, rest payload.Object) error {
	data := rest.Inner("data")
	if len(data) == 0 {
		return nil
	}
	if _, has := data["pf_id"]; has {
		if m.ID = data.Take("pf_id"); m.ID == "" {
			return errors.New("pf_id in data is empty")
		}
	}
	if err := rest.Put("data", data); err != nil {
		return err
	}
	m.Data = rest["data"]
	delete(rest, "data")
	return nil
}

// readAndroid moves priority and time to live. The rest is Android's alone, and
// our fields would say it to all platforms.
func readAndroid(m *push.Message, rest payload.Object, shown bool, now time.Time) error {
	android := rest.Inner("android")
	switch priority := android.Take("priority"); {
	case strings.EqualFold(priority, "high"):
		m.Priority = push.High
	case strings.EqualFold(priority, "normal"):
		m.Priority = push.Low
	case priority != "":
		return errors.New("its Android priority is neither normal nor high")
	case shown:
		m.Priority = push.Medium
	default:
		m.Priority = push.Low
	}
	var text string
	if json.Unmarshal(android["ttl"], &text) == nil {
		ttl, err := time.ParseDuration(text)
		if err != nil || ttl < 0 {
			return errors.New("its Android ttl is not a duration")
		}
		if ttl > 0 {
			m.ExpiresAt = now.Add(ttl)
			delete(android, "ttl")
		}
	}
	return rest.Put("android", android)
}
