package check

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// APNS is what a push to an app of Apple's needs.
type APNS struct {
	URL           string // of the environment
	Topic         string
	TLS           *tls.Config // its roots; nil = the system's
	Authorization []byte      // the value of that header
}

// nobody is a device token that Apple has issued to no device. BadDeviceToken is the
// answer to it when the credentials and the topic are good: Apple looks at them first.
var nobody = strings.Repeat("0", 64)

// Run tries all steps. Its last is one with the outcome; ctx bounds it.
func (a APNS) Run(ctx context.Context) (s Steps) {
	c := s.reach(ctx, a.URL, a.TLS)
	if c == nil {
		return s
	}
	defer c.close()
	answer, err := c.post(ctx, a.URL+"/3/device/"+nobody, `{"aps":{"content-available":1}}`, http.Header{
		"Authorization":   {string(a.Authorization)},
		"Apns-Topic":      {a.Topic},
		"Apns-Push-Type":  {"background"},
		"Apns-Priority":   {"5"},
		"Apns-Expiration": {"0"},
	})
	if err != nil {
		s.fails("HTTP/2", short(err), "the connection ended without an answer: a proxy between this machine and Apple?")
		return s
	}
	defer answer.Body.Close()
	var body struct {
		Reason string `json:"reason"`
	}
	_ = json.NewDecoder(io.LimitReader(answer.Body, 4096)).Decode(&body) // no reason is one that is not known
	s.well("HTTP/2", "answered")
	a.read(&s, answer, body.Reason)
	return s
}

// read judges Apple's answer, by the table of its page "Handling notification responses
// from APNs".
func (a APNS) read(s *Steps, answer *http.Response, reason string) {
	detail := fmt.Sprintf("%d %s", answer.StatusCode, line(reason))
	switch reason {
	case "BadDeviceToken", "Unregistered", "ExpiredToken", "TooManyRequests": // all of the device
		s.well("credentials", "accepted")
		s.well("topic", a.Topic+" may be pushed to")
	case "InvalidProviderToken", "MissingProviderToken":
		s.fails("credentials", detail, "key_file, key_id and team_id do not belong together, or the key was revoked: compare them with Apple's list of keys")
	case "ExpiredProviderToken":
		s.fails("credentials", detail, "this machine's clock is wrong"+clockError(answer))
	case "BadEnvironmentKeyInToken", "BadEnvironmentKeyIdInToken":
		s.fails("credentials", detail, "the key is for Apple's other environment: make one for this, or change environments")
	case "UnrelatedKeyIdInToken":
		s.fails("credentials", detail, "the key may not push to "+a.Topic+": it was made for other topics")
	case "TooManyProviderTokenUpdates":
		s.fails("credentials", detail, "another program signs with the same key, or this ran too often: try again in 20 minutes")
	case "TopicDisallowed", "BadTopic", "MissingTopic", "DeviceTokenNotForTopic":
		s.well("credentials", "accepted")
		s.fails("topic", detail, "topic is not the bundle id of an app of this team: "+a.Topic)
	default:
		a.readStatus(s, answer.StatusCode, detail)
	}
}

func (a APNS) readStatus(s *Steps, status int, detail string) {
	switch {
	case status == http.StatusOK:
		s.well("credentials", "accepted")
		s.well("topic", a.Topic+" was pushed to a device that does not exist: this is a simulator")
	case status == http.StatusTooManyRequests || status >= 500:
		s.fails("answer", detail, "Apple does not answer pushes at the moment; the credentials were not judged: try again")
	default:
		s.fails("answer", detail, "an answer that says nothing of the credentials: is the URL Apple's?")
	}
}

// clockError is by how much this machine's clock is wrong, where the answer tells.
func clockError(answer *http.Response) string {
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return ""
	}
	off := time.Since(at).Round(time.Second)
	return fmt.Sprintf(" by about %v: run an NTP client", off)
}
