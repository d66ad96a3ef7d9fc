package sim

import (
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Faults are what goes wrong on one route by chance, and how long its answers
// take. The zero value answers at once and never fails.
type Faults struct {
	// Probabilities from 0 to 1, together at most 1.
	Internal    float64 // 500 InternalServerError, INTERNAL
	Unavailable float64 // 503 ServiceUnavailable, UNAVAILABLE
	TooMany     float64 // 429 TooManyRequests (APNs, of the device); project quota (FCM)
	BadGateway  float64 // 502 with an HTML page; FCM only

	// RetryAfter is sent with FCM's and OAuth's 429 and 503, in whole seconds;
	// 0 leaves the header out. Apple documents none.
	RetryAfter time.Duration
	// RetryAfterDate sends it as an HTTP date.
	RetryAfterDate bool

	// Chances are what else happens; their probabilities count with the others.
	Chances []Chance

	// Latency passes before an answer is sent, a uniformly distributed part of
	// Jitter on top, and what is drawn from Spread.
	Latency, Jitter time.Duration
	Spread          Distribution
}

// SetLatency replaces Latency, Jitter and Spread.
func (f *Faults) SetLatency(d Distribution) {
	f.Latency, f.Jitter, f.Spread = 0, 0, d
	if d.Shape == Fixed {
		f.Latency, f.Spread = d.A, Distribution{}
	}
}

// Chance is something that is done to a share of the requests.
type Chance struct {
	Probability float64
	Act         Act
}

// Validate rejects probabilities and times that cannot be.
func (f Faults) Validate() error {
	sum := 0.0
	for _, p := range []float64{f.Internal, f.Unavailable, f.TooMany, f.BadGateway} {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("probability %v is not between 0 and 1", p)
		}
		sum += p
	}
	for _, c := range f.Chances {
		if !(c.Probability >= 0 && c.Probability <= 1) {
			return fmt.Errorf("probability %v is not between 0 and 1", c.Probability)
		}
		sum += c.Probability
	}
	if sum > 1+1e-9 {
		return fmt.Errorf("probabilities add up to %v", sum)
	}
	if f.RetryAfter < 0 || f.Latency < 0 || f.Jitter < 0 {
		return fmt.Errorf("negative time")
	}
	return f.Spread.Validate()
}

// validateFor also rejects what cannot be done to a provider's requests.
func (f *Faults) validateFor(p Provider) error {
	for i := range f.Chances {
		if err := f.Chances[i].Act.Validate(p); err != nil {
			return err
		}
	}
	return f.Validate()
}

// chancy reports whether anything needs a draw.
func (f *Faults) chancy() bool {
	return f.Internal+f.Unavailable+f.TooMany+f.BadGateway > 0 || len(f.Chances) > 0 || f.Jitter > 0 || f.Spread.chancy()
}

// act says which fault, if any, a draw from [0,1) means.
func (f *Faults) act(p Provider, draw float64) (Reply, *Act) {
	for _, c := range [...]struct {
		chance           float64
		apns, fcm, oauth Reply
	}{
		{f.Internal, APNSInternalServerError, FCMInternal, OAuthInternal},
		{f.Unavailable, APNSServiceUnavailable, FCMUnavailable, OAuthUnavailable},
		{f.TooMany, APNSTooManyRequests, FCMProjectQuota, OAuthTooMany},
		{f.BadGateway, NoReply, FCMBadGateway, NoReply},
	} {
		if draw < c.chance {
			return [...]Reply{APNS: c.apns, FCM: c.fcm, OAuth: c.oauth}[p], nil
		}
		draw -= c.chance
	}
	for i := range f.Chances {
		if draw < f.Chances[i].Probability {
			return NoReply, &f.Chances[i].Act
		}
		draw -= f.Chances[i].Probability
	}
	return NoReply, nil
}

// chance decides what goes wrong. Its draws come from the seed, the
// notification and how often that one came before, not from the order of
// arrival: the same seed and the same notifications give the same faults, on
// however many connections.
type chance struct {
	seed   uint64
	ledger *Ledger
	routes [OAuth + 1]atomic.Pointer[Faults]
	next   atomic.Uint64 // stands in for the notification where there is none
}

func newChance(seed uint64, l *Ledger) *chance {
	c := &chance{seed: seed, ledger: l}
	for i := range c.routes {
		c.routes[i].Store(&Faults{})
	}
	return c
}

// draw returns what goes wrong, if anything, and the latency of the request.
func (c *chance) draw(p Provider, id, device []byte) (Reply, *Act, time.Duration, *Faults) {
	f := c.routes[p].Load()
	if !f.chancy() {
		return NoReply, nil, f.Latency + f.Spread.A, f
	}
	var key uint64
	if len(id) > 0 {
		key = entryKey(id, device)
		key = mix(key, uint64(c.ledger.attempts(key)))
	} else {
		key = c.next.Add(1)
	}
	key = mix(key, c.seed)
	latency := f.Latency
	if f.Jitter > 0 {
		part, _ := bits.Mul64(mix(key, 1), uint64(f.Jitter)+1)
		latency += time.Duration(part)
	}
	latency += f.Spread.at(unit(mix(key, 4)), unit(mix(key, 5)))
	reply, act := f.act(p, unit(mix(key, 2)))
	return reply, act, latency, f
}

// unit makes a number in [0,1) of random bits.
func unit(bits uint64) float64 { return float64(bits>>11) / (1 << 53) }

// mix scrambles two numbers into one (the finalizer of SplitMix64).
func mix(a, b uint64) uint64 {
	x := a ^ (b+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// retryAfter adds the header to the answers that may carry it.
func (f *Faults) retryAfter(ans *Answer, now time.Time) {
	if f.RetryAfter == 0 || ans.Status != 429 && ans.Status != 503 {
		return
	}
	seconds := int64((f.RetryAfter + time.Second - 1) / time.Second)
	value := strconv.FormatInt(seconds, 10)
	if f.RetryAfterDate {
		value = now.Add(time.Duration(seconds) * time.Second).UTC().Format(http.TimeFormat)
	}
	ans.field("retry-after", value)
}
