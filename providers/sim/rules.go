package sim

import (
	"fmt"
	"sync"
	"time"
)

// Limit is a number of things in a time, by the simulated clock. The zero
// value is no limit.
type Limit struct {
	Count int           `json:"count"`
	Per   time.Duration `json:"per"`
}

// Rules are the ways of the real providers that come about by what a client
// does. Those of the zero value are off. Validation is no rule: it is always
// on, except in raw mode.
type Rules struct {
	// OneStream grants a new connection one stream until a push on it was
	// authenticated; a second one before that is answered GOAWAY. (Apple)
	OneStream bool
	// AdaptiveStreams takes the streams of a connection back to one after any
	// 4xx but 410, until the next acceptance. (Apple)
	AdaptiveStreams bool
	// BadTokens a connection survives; one more and it is disconnected. (Apple)
	BadTokens Limit
	// UpdatesPerAddress looks for provider tokens that change too often by
	// source address, not only by connection: an address whose token of one key
	// changes twice within 20 minutes gets no new token accepted for as long.
	// (Apple)
	UpdatesPerAddress bool
	// PerDevice is how many requests a device token may get. (Apple)
	PerDevice Limit

	// ProjectQuota of a project, in windows that do not begin with the clock's
	// minute. Answers 4xx but 429 count. (Google)
	ProjectQuota Limit
	// QuotaRetryAfter sends Retry-After with it: when the window ends.
	QuotaRetryAfter bool
	// QuotaHeaders say with every answer what is left of it.
	QuotaHeaders QuotaHeaders
	// DeviceQuota and DeviceQuotaLong hold for one token, TopicQuota for one
	// topic. (Google)
	DeviceQuota, DeviceQuotaLong, TopicQuota Limit
	// Streams that a connection to Google may have; one more is answered
	// GOAWAY. 0 means as many as Options.MaxConcurrentStreams, which are refused
	// one by one beyond that.
	Streams int
	// Idle is how long a connection to Google lives without a request; 0 means
	// for ever.
	Idle time.Duration
	// Pings a connection to Google may send. One more is answered GOAWAY.
	Pings Limit

	// Recovery has one of them come back slowly, and fall over when it is asked for
	// too much.
	Recovery Recovery

	// Dials an address may make; one more, and its connections are reset for
	// DialsRefused.
	Dials        Limit
	DialsRefused time.Duration
}

// LifelikeRules are all on, with the numbers that Google documents or that
// were seen of the real services. Apple publishes none: where nothing was seen
// the number is far from what a correct sender does.
func LifelikeRules() Rules {
	return Rules{
		OneStream: true, AdaptiveStreams: true, UpdatesPerAddress: true,
		BadTokens: Limit{100, time.Minute},
		PerDevice: Limit{400, time.Minute}, // one report of about 400

		ProjectQuota: Limit{600_000, time.Minute},
		DeviceQuota:  Limit{240, time.Minute}, DeviceQuotaLong: Limit{5000, time.Hour}, TopicQuota: Limit{10_000, time.Second},
		Streams: 100, Idle: 3 * time.Minute, Pings: Limit{4, time.Minute}, // Google's own client pings after 31 s of silence

		Dials: Limit{300, time.Minute}, DialsRefused: time.Minute,
	}
}

// Validate rejects what cannot be.
func (r *Rules) Validate() error {
	for name, l := range map[string]Limit{
		"bad tokens": r.BadTokens, "per device": r.PerDevice, "project quota": r.ProjectQuota, "device quota": r.DeviceQuota,
		"long device quota": r.DeviceQuotaLong, "topic quota": r.TopicQuota, "pings": r.Pings, "dials": r.Dials,
	} {
		if l.Count < 0 || l.Per < 0 || (l.Count > 0) != (l.Per > 0) {
			return fmt.Errorf("rule %s: %d in %v is no limit", name, l.Count, l.Per)
		}
	}
	if r.Streams < 0 || r.Idle < 0 || r.DialsRefused < 0 || (r.Dials.Count > 0) != (r.DialsRefused > 0) {
		return fmt.Errorf("rules: negative, or dials without how long they are refused")
	}
	if err := r.QuotaHeaders.validate(); err != nil {
		return err
	}
	if err := r.Recovery.Validate(); err != nil {
		return fmt.Errorf("rule %w", err)
	}
	return nil
}

// ratesPrune is the number of counts from which those of the past are thrown
// away.
const ratesPrune = 1 << 18

// window counts from the first of the things in it.
type window struct {
	ends  time.Time
	count int
}

// over counts one more, and reports whether that is more than the limit.
func (w *window) over(l Limit, now time.Time) bool {
	if l.Count == 0 {
		return false
	}
	if !now.Before(w.ends) {
		*w = window{ends: now.Add(l.Per)}
	}
	w.count++
	return w.count > l.Count
}

// rates are windows by what they count.
type rates struct {
	mu      sync.Mutex
	windows map[uint64]window
	prune   int
}

func newRates() *rates { return &rates{windows: map[uint64]window{}, prune: ratesPrune} }

// over counts one more of a key, and reports whether that is more than the
// limit. A window starts with its first count, except that those of an offset
// above 0 end at multiples of the limit's time plus the offset.
func (r *rates) over(key uint64, l Limit, now time.Time, offset time.Duration) bool {
	if l.Count == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.windows[key]
	if offset > 0 && !now.Before(w.ends) {
		w = window{ends: windowEnd(l.Per, now, offset)}
		w.count++
	} else {
		w.over(l, now)
	}
	r.windows[key] = w
	r.forget(now)
	return w.count > l.Count
}

// exhaust makes all that comes until the end of the present window too much.
func (r *rates) exhaust(key uint64, l Limit, now time.Time, offset time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.windows[key] = window{ends: windowEnd(l.Per, now, offset), count: 1 << 41}
}

// refund takes one count back.
func (r *rates) refund(key uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.windows[key]; w.count > 0 {
		w.count--
		r.windows[key] = w
	}
}

// exhausted reports whether a window that exhaust filled is still open.
func (r *rates) exhausted(key uint64, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.windows[key]
	return w.count >= 1<<40 && now.Before(w.ends)
}

// forget is called with mu held.
func (r *rates) forget(now time.Time) {
	if len(r.windows) < r.prune {
		return
	}
	for k, w := range r.windows {
		if !now.Before(w.ends) {
			delete(r.windows, k)
		}
	}
	r.prune = max(ratesPrune, 2*len(r.windows))
}

func windowEnd(per time.Duration, now time.Time, offset time.Duration) time.Time {
	return now.Add(-offset).Truncate(per).Add(per + offset)
}
