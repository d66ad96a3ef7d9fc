package sim

import (
	"slices"
	"time"
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
type Field struct{ Name, Value string }

// Request is what a policy sees of an HTTP request. The policy keeps no part
// of it, so an engine may reuse its memory, that of its strings included, once
// Answer has returned.
type Request struct {
	Method string
	Path   string
	Fields []Field // in the order received, repeated names included
	Body   []byte
	Conn   *Conn  // of the connection it came over; never nil
	Stream uint32 // of that connection; 0 with HTTP/1.1

	device [16]byte  // memory of its hash, which observers may see
	now    time.Time // by the simulated clock, when it came; zero until Answer unless the engine knows

	shutdown bool // the connection is about to go away: 503
}

// Answer is what a policy lets an engine send. An engine that reuses one keeps
// the capacity of its slices, and none of its strings.
type Answer struct {
	Reply   Reply         // what it is, by name
	Status  int           // HTTP status
	Fields  []Field       // header fields, names in lower case
	Body    []byte        // may be empty
	Latency time.Duration // how long to wait before it is sent

	text arena // of strings in Fields

	act     *Act     // for the engine to do, besides
	by      string   // whose act it is
	decided decision // as the ledger has it
}

func (a *Answer) reset() {
	a.Reply, a.Status, a.Latency = NoReply, 0, 0
	a.act, a.by, a.decided = nil, "", decision{}
	a.Fields, a.Body, a.text = a.Fields[:0], a.Body[:0], a.text[:0]
}

func (a *Answer) has(name string) bool {
	return slices.ContainsFunc(a.Fields, func(f Field) bool { return f.Name == name })
}

func (a *Answer) field(name, value string) {
	a.Fields = append(a.Fields, Field{name, value})
}
