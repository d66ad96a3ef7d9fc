package push

import (
	"encoding/json"
	"time"
)

// Priority says how urgent a message is. It decides the provider's own
// priority. Critical passes the limits of users and devices, and all that users prefer
// but "blocked"; the limits of senders apply to it too.
type Priority uint8

// The priorities of the message contract, least urgent first. The zero value is
// not valid, so that a forgotten default is noticed.
const (
	Bulk Priority = iota + 1
	Low
	Medium // the default
	High
	Critical
)

// String gives the word that producers use.
func (p Priority) String() string {
	switch p {
	case Bulk:
		return "bulk"
	case Low:
		return "low"
	case Medium:
		return "medium"
	case High:
		return "high"
	case Critical:
		return "critical"
	}
	return "none"
}

// Urgent reports whether the provider is asked to deliver at once
// (apns-priority 10, FCM HIGH) rather than when it suits the device.
func (p Priority) Urgent() bool { return p >= Medium }

// Message is what a producer wrote, decoded and checked. Its strings and raw
// parts are cut from the Kafka record and share its memory: copy what is to
// outlive the batch. What most stages look at comes first.
type Message struct {
	ID          string // 1 to 64 bytes of printable ASCII
	App         string // names the route
	UserID      string // at most 128 bytes; empty when Device is set alone
	Type        string // free name, default "default"
	CollapseKey string
	Device      Target   // the one device it is for; zero = all devices of the user's app
	Priority    Priority // 0 = not given: the lane's default
	HasBadge    bool
	SenderID    string
	Campaign    string // what it is a part of, at most 64 bytes; empty = of nothing
	PushType    string // one of Apple's eleven

	Title, Body, Image, Video string
	Sound, Category, ThreadID string
	Locale                    string
	Badge                     int             // if HasBadge
	Data                      json.RawMessage // an object of strings, or nil

	ExpiresAt time.Time // zero = the lane's greatest age counts

	APNSHeaders []Header        // raw overrides, names from Apple's list only
	APNSPayload json.RawMessage // an object merged into the payload, or nil
	FCM         json.RawMessage // an object merged into the message, or nil
}

// Header is one raw APNs header that a producer set.
type Header struct{ Name, Value string }

// Target names one device by its token instead of through its user.
type Target struct {
	Platform    Platform
	Token       string
	Environment string // one of its platform's; empty = the platform has none
}
