package sim

import (
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/providers/sim/engine"
)

// Provider is one of the services that are simulated.
type Provider uint8

// The simulated services. The zero value stands for a path of none of them.
const (
	Nobody Provider = iota
	APNS
	FCM
	OAuth
)

var providerNames = [...]string{"none", "apns", "fcm", "oauth"}

// String is the name used in the ledger and in the admin API.
func (p Provider) String() string {
	if int(p) < len(providerNames) {
		return providerNames[p]
	}
	return "invalid"
}

// ParseProvider is the inverse of String.
func ParseProvider(name string) (Provider, bool) {
	for i, n := range providerNames {
		if n == name {
			return Provider(i), true
		}
	}
	return Nobody, false
}

// Field is one header field, its name in lower case.
type Field = engine.Field

// Request is what a policy sees of an HTTP request. The policy keeps no part
// of it, so its memory, that of its strings included, may be used again once
// Answer has returned.
type Request struct {
	Method string
	Path   string
	Fields []Field // in the order received, repeated names included
	Body   []byte
	Conn   *Conn  // of the connection it came over; never nil
	Stream uint32 // of that connection; 0 with HTTP/1.1

	device [16]byte  // memory of its hash, which observers may see
	now    time.Time // by the simulated clock, when it came; zero until Answer unless the caller knows

	shutdown bool // the connection is about to go away: 503
}

// Answer is what a policy lets the engine send, and what it is besides that.
type Answer struct {
	engine.Answer
	Reply Reply // what it is, by name

	act     *Act     // for the session to do, besides
	by      string   // whose act it is
	decided decision // as the ledger has it
}

func (a *Answer) reset() {
	a.Answer.Reset()
	a.Reply, a.act, a.by, a.decided = NoReply, nil, "", decision{}
}

func (a *Answer) has(name string) bool {
	return slices.ContainsFunc(a.Fields, func(f Field) bool { return f.Name == name })
}

func (a *Answer) field(name, value string) {
	a.Fields = append(a.Fields, Field{Name: name, Value: value})
}
