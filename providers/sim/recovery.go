package sim

import (
	"errors"
	"sync"
	"time"
)

// Recovery is how a provider comes back that was down: with little room, which grows; and
// it goes down again if it is asked for too much meanwhile. What comes beyond its room is
// answered 503. The zero value is off.
type Recovery struct {
	Provider Provider
	Down     time.Duration // from the moment at which the rule is set, and after each fall
	Full     int           // requests that it answers in a second once it is whole
	Start    float64       // the part of Full that it begins with; above 0, at most 1
	Growth   float64       // the part of Full that it gains in a second
	// Falls is for how many times its room it must be asked within a second to fall over;
	// at least 1.
	Falls float64
}

// Validate rejects what cannot be.
func (r *Recovery) Validate() error {
	switch {
	case *r == Recovery{}:
		return nil
	case r.Provider != APNS && r.Provider != FCM:
		return errors.New("recovery: only apns and fcm can")
	case r.Down <= 0 || r.Full < recoverySlices || !(r.Start > 0 && r.Start <= 1) || !(r.Growth >= 0) || !(r.Falls >= 1):
		return errors.New("recovery: the time down must be positive, full at least 10 a second, the start above 0 and at most 1, the growth not negative, and it falls at 1 or more")
	}
	return nil
}

// recoverySlices are the parts of a second by which requests are counted.
const recoverySlices = 10

// recovery is a provider that comes back.
type recovery struct {
	mu sync.Mutex
	recovering
}

// recovering is guarded by mu.
type recovering struct {
	rule  Recovery
	up    time.Time // when it is back
	slice int64     // the newest part of a second that was counted, since the epoch
	asked [recoverySlices]int
	falls int
}

// over counts a request, and reports whether there is no room for it. A rule that is new
// begins with the time down.
func (r *recovery) over(rule *Recovery, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rule != *rule {
		r.recovering = recovering{rule: *rule, up: now.Add(rule.Down)}
	}
	if now.Before(r.up) {
		return true
	}
	const each = int64(time.Second / recoverySlices)
	newest := now.UnixNano() / each
	for passed := max(r.slice+1, newest-recoverySlices+1); passed <= newest; passed++ {
		r.asked[passed%recoverySlices] = 0
	}
	r.slice = max(r.slice, newest) // requests come with times in no order
	r.asked[newest%recoverySlices]++
	room := float64(rule.Full) * min(rule.Start+rule.Growth*now.Sub(r.up).Seconds(), 1)
	all := 0
	for _, n := range r.asked {
		all += n
	}
	if float64(all) > rule.Falls*room {
		r.up, r.asked = now.Add(rule.Down), [recoverySlices]int{}
		r.falls++
		return true
	}
	return float64(r.asked[newest%recoverySlices]) > max(room/recoverySlices, 1)
}

// Falls is how often a provider that was coming back has fallen over, under the rule that
// holds now.
func (s *Server) Falls() int {
	r := &s.policy.recovery
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rule != s.Rules().Recovery {
		return 0 // nothing has come since it was set
	}
	return r.falls
}
