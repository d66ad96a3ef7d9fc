package fcm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pushfleet/pushfleet/providers/fcm"
	"github.com/pushfleet/pushfleet/push"
)

// form is a message as the REST API writes it.
type form string

func (f form) MarshalJSON() ([]byte, error) { return []byte(f), nil }

func TestMessagesThatAreRefused(t *testing.T) {
	for why, f := range map[string]form{
		"topic":         `{"topic":"secret-looking text"}`,
		"condition":     `{"condition":"secret-looking text"}`,
		"live activity": `{"token":"x","apns":{"live_activity_token":"secret-looking text"}}`,
		"installation":  `{"fid":"secret-looking text"}`,
		"no target":     `{"notification":{"title":"secret-looking text"}}`,
		"no object":     `["secret-looking text"]`,
		"no JSON":       `secret-looking text`,
		"priority":      `{"token":"x","android":{"priority":"secret-looking text"}}`,
		"ttl":           `{"token":"x","android":{"ttl":"secret-looking text"}}`,
		"negative ttl":  `{"token":"x","android":{"ttl":"-5s"}}`,
		"pf_id":         `{"token":"x","data":{"pf_id":""}}`,
	} {
		if m, err := fcm.FromMessage(f, time.Now()); err == nil {
			t.Errorf("%s: read as %+v", why, m)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error repeats the message: %v", why, err)
		}
	}
	if m, err := fcm.FromMessage(form(`{"token":"x","data":{"pf_id":"n7","k":"v"}}`), time.Now()); err != nil || m.ID != "n7" || string(m.Data) != `{"k":"v"}` {
		t.Errorf("%+v, %v", m, err)
	}
}

// Android's priority is ours for all platforms. Without one, Google hurries only with what
// is shown.
func TestAndroidsPriorityBecomesOurs(t *testing.T) {
	for f, want := range map[form]push.Priority{
		`{"token":"x","android":{"priority":"HIGH"}}`:                                push.High,
		`{"token":"x","android":{"priority":"normal"}}`:                              push.Low,
		`{"token":"x","android":{"priority":"normal"},"notification":{"title":"T"}}`: push.Low,
		`{"token":"x","notification":{"title":"T"}}`:                                 push.Medium,
		`{"token":"x","data":{"k":"v"}}`:                                             push.Low,
	} {
		if m, err := fcm.FromMessage(f, time.Now()); err != nil || m.Priority != want {
			t.Errorf("%s: got priority %v (error %v), want %v", f, m.Priority, err, want)
		}
	}
}

// Shown text becomes our own fields, so that Apple's devices show it too, and
// none of it remains as an override.
func TestShownTextBecomesOurs(t *testing.T) {
	m, err := fcm.FromMessage(form(`{"token":"x","notification":{"title":"T","body":"B","image":"https://i.example/1"}}`), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if m.Title != "T" || m.Body != "B" || m.Image != "https://i.example/1" || len(m.FCM) > 0 || m.PushType != "alert" {
		t.Errorf("read as %+v", m)
	}
}
