package sim

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"time"
)

// App is one app as Apple and Google know it: who may push to it, and how the
// sender proves that it is him. Either half may be missing.
type App struct {
	Name string

	Topics []string // Apple's bundle ids, without the suffix of a push type
	TeamID string   // 10 characters
	KeyID  string   // 10 characters
	Key    *ecdsa.PublicKey
	// KeyEnvironment limits the key to "production" or "sandbox"; empty = both.
	KeyEnvironment string
	// KeyTopicsOnly makes it a topic-specific key: on a connection that is
	// bound to another key of the team it is answered UnrelatedKeyIdInToken.
	KeyTopicsOnly bool

	Project    string // of Firebase
	Account    string // e-mail address of the service account
	AccountKey *rsa.PublicKey
	// AccountDenied takes the permission to send from the account.
	AccountDenied bool
}

// Options make a Server. The zero value, with Apps added, is a simulator that
// validates everything, answers at once and never fails.
type Options struct {
	Apps []App

	// Sandbox makes it Apple's development environment: keys of the production
	// environment are refused, and answers carry apns-unique-id.
	Sandbox bool
	// DocumentedSpelling sends BadEnvironmentKeyIdInToken, as Apple's page has
	// it, in place of BadEnvironmentKeyInToken, which is really seen.
	DocumentedSpelling bool
	// UpperCaseIDs generates apns-id values in upper case, as seen of Apple.
	// Ids that the sender chose are echoed as they are.
	UpperCaseIDs bool
	// Malformed is what APNs answers to a payload that is no JSON object: Apple
	// documents nothing. Zero means APNSPayloadEmpty.
	Malformed Reply
	// Raw turns all policies off: every push to a known path is accepted
	// unseen, and the ledger counts it. What breaks HTTP/2 itself is refused as
	// without it.
	Raw bool

	// AccessTokenLife is how long OAuth tokens are good. Zero means an hour.
	AccessTokenLife time.Duration
	// Audience is what the aud claim of OAuth assertions must be, besides the
	// Server's own TokenURI and Google's. Empty adds none.
	Audience string

	Seed     uint64    // of the faults and latencies
	Faults   RouteSet  // what goes wrong from the start
	Patterns []Pattern // recognisable tokens; see Patterns
	// CountOnly keeps no ids and device hashes in the ledger.
	CountOnly bool

	// MaxConcurrentStreams per connection; 0 means 1000, as seen of Apple.
	MaxConcurrentStreams int
	// Hosts are names and addresses in the server's certificate, besides
	// localhost and the loopback addresses.
	Hosts []string

	// Watch, if given, is told of every push as it is decided, and of answers
	// that do not get out. It is called by many goroutines at once, on the way of
	// the answers: it must be quick, keep nothing of the Arrival's bytes, and not
	// call the Server.
	Watch func(*Arrival)

	// Rules that come about by what clients do; see LifelikeRules.
	Rules Rules
	// Schedule of commands, by the simulated clock from the making of the Server.
	Schedule []Scheduled

	// DateSkew is how far the Date header of answers is ahead of the simulated
	// clock (behind it, if negative), by which everything else goes: a server
	// whose Date cannot be trusted. NoDate leaves the header out; Raw does too.
	DateSkew time.Duration
	NoDate   bool

	// Now is the real clock, from which the simulated one starts; nil means
	// time.Now.
	Now func() time.Time
}

// RouteSet holds the faults of each service.
type RouteSet struct{ APNS, FCM, OAuth Faults }

const (
	defaultStreams   = 1000
	defaultTokenLife = time.Hour
)

func (o Options) withDefaults() (Options, error) {
	if o.Malformed == NoReply {
		o.Malformed = APNSPayloadEmpty
	}
	if o.AccessTokenLife == 0 {
		o.AccessTokenLife = defaultTokenLife
	}
	if o.MaxConcurrentStreams == 0 {
		o.MaxConcurrentStreams = defaultStreams
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, o.check()
}

func (o *Options) check() error {
	var errs []error
	for p, f := range map[Provider]Faults{APNS: o.Faults.APNS, FCM: o.Faults.FCM, OAuth: o.Faults.OAuth} {
		if err := f.validateFor(p); err != nil {
			errs = append(errs, fmt.Errorf("faults of %s: %w", p, err))
		}
	}
	if err := o.Rules.Validate(); err != nil {
		errs = append(errs, err)
	}
	for i := range o.Schedule {
		if err := o.Schedule[i].validate(); err != nil {
			errs = append(errs, fmt.Errorf("schedule, command %d: %w", i+1, err))
		}
	}
	if o.Malformed.Provider() != APNS {
		errs = append(errs, errors.New("malformed: not an answer of APNs"))
	}
	if o.AccessTokenLife < time.Second {
		errs = append(errs, errors.New("access token life: under a second"))
	}
	if o.MaxConcurrentStreams < 0 {
		errs = append(errs, errors.New("max concurrent streams: negative"))
	}
	for _, a := range o.Apps {
		if a.Key != nil && (len(a.KeyID) != 10 || len(a.TeamID) != 10) {
			errs = append(errs, fmt.Errorf("app %s: key id and team id have 10 characters", a.Name))
		}
		if a.AccountKey != nil && (a.Account == "" || a.Project == "") {
			errs = append(errs, fmt.Errorf("app %s: a service account has an address and a project", a.Name))
		}
	}
	return errors.Join(errs...)
}
