package sim

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Mark is what is special about a device token.
type Mark struct {
	// Reply is given instead of accepting. NoReply with a Home only binds it.
	Reply Reply
	// Act is done to requests instead, if there is no Reply.
	Act *Act
	// Since is when the token died; it is the timestamp of a 410. Until it has
	// come the token is alive, so a later time makes a token that will die.
	Since time.Time
	// Times is how many requests get the Reply before the token is normal
	// again; 0 means all.
	Times int
	// Home is the topic (APNs) or project (FCM) that the token belongs to:
	// another one is answered DeviceTokenNotForTopic or SENDER_ID_MISMATCH.
	// Empty: any.
	Home string
}

// Pattern makes all tokens with a prefix special, without naming them.
type Pattern struct {
	Provider Provider
	Prefix   string // lower case for APNs
	Mark     Mark
}

// Patterns are prefixes by which a test can make special tokens up. Random
// hexadecimal tokens start with one once in four billion.
func Patterns() []Pattern {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return []Pattern{
		{APNS, "deaddead", Mark{Reply: APNSUnregistered, Since: since}},
		{APNS, "deadbeef", Mark{Reply: APNSExpiredToken, Since: since}},
		{APNS, "badbadba", Mark{Reply: APNSBadDeviceToken}},
		{APNS, "04290429", Mark{Reply: APNSTooManyRequests}},
		{FCM, "deaddead", Mark{Reply: FCMUnregistered}},
		{FCM, "badbadba", Mark{Reply: FCMInvalidToken}},
		{FCM, "04290429", Mark{Reply: FCMDeviceQuota}},
	}
}

// Devices is the simulator's registry of special device tokens; a token that
// is not in it is alive and well. Safe for concurrent use.
type Devices struct {
	patterns atomic.Pointer[[]Pattern] // replaced, never changed
	marked   atomic.Int64              // how many tokens are in it: none is the common case

	mu    sync.RWMutex
	marks map[uint64]Mark // by hash of provider and token: tokens are not kept
}

func newDevices(patterns []Pattern) *Devices {
	d := &Devices{marks: map[uint64]Mark{}}
	d.patterns.Store(&patterns)
	return d
}

// SetPrefix marks all tokens that begin with a prefix (lower case for APNs) and
// have no mark of their own. The zero Mark takes it back.
func (d *Devices) SetPrefix(p Provider, prefix string, m Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Pattern
	for _, old := range *d.patterns.Load() {
		if old.Provider != p || old.Prefix != prefix {
			list = append(list, old)
		}
	}
	if m != (Mark{}) {
		list = append(list, Pattern{p, prefix, m})
	}
	d.patterns.Store(&list)
}

// Set marks a token. A later mark of the same token replaces an earlier one.
func (d *Devices) Set(p Provider, token string, m Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marks[tokenKey(p, token)] = m
	d.marked.Store(int64(len(d.marks)))
}

// Clear makes a token normal again.
func (d *Devices) Clear(p Provider, token string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.marks, tokenKey(p, token))
	d.marked.Store(int64(len(d.marks)))
}

// Dead makes a token answer 410 Unregistered with this timestamp (APNs) or 404
// UNREGISTERED (FCM), from the time since on.
func (d *Devices) Dead(p Provider, token string, since time.Time) {
	d.Set(p, token, Mark{Reply: pick(p, APNSUnregistered, FCMUnregistered), Since: since})
}

// Bad makes a token one that the provider never issued.
func (d *Devices) Bad(p Provider, token string) {
	d.Set(p, token, Mark{Reply: pick(p, APNSBadDeviceToken, FCMInvalidToken)})
}

// Throttled makes the next requests to a token be answered 429 for that
// device; times 0 means all.
func (d *Devices) Throttled(p Provider, token string, times int) {
	d.Set(p, token, Mark{Reply: pick(p, APNSTooManyRequests, FCMDeviceQuota), Times: times})
}

func pick(p Provider, apns, fcm Reply) Reply {
	if p == FCM {
		return fcm
	}
	return apns
}

// lookup returns what of its mark counts for a token now, and uses up one of
// its times. home is where the request is addressed.
func (d *Devices) lookup(p Provider, token, home string, now time.Time) Mark {
	if d.marked.Load() > 0 {
		key := tokenKey(p, token)
		d.mu.RLock()
		m, ok := d.marks[key]
		d.mu.RUnlock()
		if ok {
			if m.Times > 0 {
				d.use(key)
			}
			return m.at(p, home, now)
		}
	}
	patterns := *d.patterns.Load()
	for i := range patterns {
		f := &patterns[i]
		if f.Provider == p && len(token) >= len(f.Prefix) && (token[:len(f.Prefix)] == f.Prefix ||
			p == APNS && strings.EqualFold(token[:len(f.Prefix)], f.Prefix)) {
			return f.Mark.at(p, home, now)
		}
	}
	return Mark{}
}

func (m *Mark) at(p Provider, home string, now time.Time) Mark {
	if m.Home != "" && m.Home != home {
		return Mark{Reply: pick(p, APNSDeviceTokenNotForTopic, FCMSenderIDMismatch)}
	}
	if m.Since.After(now) {
		return Mark{}
	}
	return *m
}

// use counts one of a mark's times; after the last one only its Home is left.
func (d *Devices) use(key uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.marks[key]
	switch {
	case !ok || m.Times == 0:
		return
	case m.Times > 1:
		m.Times--
		d.marks[key] = m
	case m.Home != "":
		d.marks[key] = Mark{Home: m.Home}
	default:
		delete(d.marks, key)
		d.marked.Store(int64(len(d.marks)))
	}
}
