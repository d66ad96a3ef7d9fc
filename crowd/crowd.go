// Package crowd makes up users, devices and notifications, and knows what must
// become of each: for the demo, for load and benchmarks, and for tests that
// hold the fleet's outcomes against what was meant. The same options give the
// same crowd.
package crowd

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/pushfleet/pushfleet/push"
)

// Kind says what is special about a user.
type Kind uint8

// The kinds of users.
const (
	Plain     Kind = iota // one to three devices, all alive
	OptedOut              // of everything, of the channel or of the type they get
	Greedy                // gets more than its limit
	DeadToken             // every token is dead
	HalfDead              // two devices, one of them with a dead token
	NoDevice              // none registered
	kinds
)

var kindNames = [kinds]string{"plain", "opted out", "greedy", "dead token", "half dead", "no device"}

func (k Kind) String() string { return kindNames[k] }

// Options say what the crowd is like. Shares are parts of 1.
type Options struct {
	Seed uint64
	App  string
	// Others are further apps: users are of one each, by turns.
	Others []string
	Users  int // at least 20

	// Shares of the users; the rest is plain.
	OptedOut, Greedy, DeadToken, HalfDead, NoDevice float64
	// Shares of the records.
	Duplicates, Expired, Broken float64
	// Soon is the share of plain users' records that expire Within after they
	// were made, whole seconds: while they wait, if they have to.
	Soon   float64
	Within time.Duration
	// Cap is how many notifications of one type a user may get; greedy users
	// get more than that on purpose, the others are kept under it. 0 = no caps,
	// nobody is greedy.
	Cap int
	// Devices is how many devices each user has; 0 = one to three.
	Devices int
	// Wide is how many devices the first plain user has, to whom one of WideEvery
	// records goes, and no other: as many as its cap allows. 0 = there is no such
	// user.
	Wide, WideEvery int
}

// Default is a crowd with a bit of everything, sized for this many records: ten
// a user.
func Default(app string, records int) Options {
	return Options{Seed: 1, App: app, Users: max(20, records/10),
		OptedOut: 0.04, Greedy: 0.02, DeadToken: 0.01, HalfDead: 0.02, NoDevice: 0.02,
		Duplicates: 0.05, Expired: 0.01, Broken: 0.005, Cap: 20}
}

// User is one made-up user.
type User struct {
	ID          string
	Kind        Kind
	Devices     []push.Device
	Preferences push.Preferences
}

// Crowd is the users of Options. It is safe for concurrent use.
type Crowd struct {
	Options
	greedy []int // indexes of greedy users
	widest int   // index of the user with Wide devices; -1 = there is none
}

// New checks the options.
func New(o Options) (*Crowd, error) {
	if o.App == "" || o.Users < 20 {
		return nil, errors.New("crowd: an app and at least 20 users are needed")
	}
	if o.Cap == 0 {
		o.Greedy = 0
	}
	if s := o.OptedOut + o.Greedy + o.DeadToken + o.HalfDead + o.NoDevice; s > 1 {
		return nil, fmt.Errorf("crowd: shares of users add up to %v", s)
	}
	if s := o.Duplicates + o.Expired + o.Broken + o.Soon; s > 0.9 {
		return nil, fmt.Errorf("crowd: shares of records add up to %v", s)
	}
	if o.Soon > 0 && o.Within < time.Second {
		return nil, fmt.Errorf("crowd: records that expire soon do so within %v, want at least 1s", o.Within)
	}
	if o.Wide < 0 || o.Wide > 0 && o.WideEvery < 1 {
		return nil, fmt.Errorf("crowd: one of %d records is for a user with %d devices", o.WideEvery, o.Wide)
	}
	c := &Crowd{Options: o, widest: -1}
	for i := range o.Users {
		switch kind := c.kind(i); {
		case kind == Greedy:
			c.greedy = append(c.greedy, i)
		case kind == Plain && o.Wide > 0 && c.widest < 0:
			c.widest = i
		}
	}
	if o.Wide > 0 && c.widest < 0 {
		return nil, fmt.Errorf("crowd: no user is plain, and one is to have %d devices", o.Wide)
	}
	return c, nil
}

// kind spreads the kinds evenly over the users, by the golden ratio.
func (c *Crowd) kind(i int) Kind {
	x := float64(i) * 0.6180339887498949
	x -= float64(int(x))
	for k, share := range []float64{OptedOut: c.Options.OptedOut, Greedy: c.Options.Greedy, DeadToken: c.Options.DeadToken, HalfDead: c.Options.HalfDead, NoDevice: c.Options.NoDevice} {
		if x < share {
			return Kind(k)
		}
		x -= share
	}
	return Plain
}

// DeadPrefix begins every token that the provider shall call dead. The
// simulator knows it (sim.Patterns).
const DeadPrefix = "deaddead"

// registered is when all devices were registered: long before any dead token's
// timestamp could be mistaken for an older registration.
var registered = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

// User makes up user i, 0 to Users-1; the same each time.
func (c *Crowd) User(i int) User {
	r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
	u := User{ID: "u" + strconv.Itoa(i), Kind: c.kind(i)}
	n := 1 + r.IntN(3)
	if c.Devices > 0 {
		n = c.Devices
	}
	if i == c.widest {
		n = c.Wide
	}
	switch u.Kind {
	case OptedOut:
		switch i % 3 {
		case 0:
			u.Preferences.OptOutAll = true
		case 1:
			u.Preferences.Channels = []string{push.ChannelPush}
		case 2:
			u.Preferences.Types = types[:]
		}
	case HalfDead:
		n = 2
	case NoDevice:
		n = 0
	}
	for j := range n {
		u.Devices = append(u.Devices, c.device(r, c.AppOf(i), u.Kind == DeadToken || u.Kind == HalfDead && j == 0))
	}
	return u
}

// AppOf is the app that user i has, and gets all its notifications of.
func (c *Crowd) AppOf(i int) string {
	if n := i % (1 + len(c.Others)); n > 0 {
		return c.Others[n-1]
	}
	return c.App
}

// device makes up a device; half of them are Apple's.
func (c *Crowd) device(r *rand.Rand, app string, dead bool) push.Device {
	var raw [32]byte
	for i := range raw {
		raw[i] = byte(r.Uint32())
	}
	d := push.Device{Platform: push.APNS, Environment: push.Production, App: app,
		Token: hex.EncodeToString(raw[:]), Locale: "en", RegisteredAt: registered}
	if r.IntN(2) == 0 {
		d.Platform, d.Environment = push.FCM, ""
		d.Token = "f" + d.Token[1:22] + ":APA91b" + d.Token[:60]
	}
	if dead {
		d.Token = DeadPrefix + d.Token[len(DeadPrefix):]
	}
	d.Hash = push.DeviceHash(d.Platform, d.Token)
	return d
}
