package sim

import (
	"errors"
	"fmt"
	"time"
)

// TokenOrder marks a device token, or with Prefix all that begin with it.
type TokenOrder struct {
	Provider string    `json:"provider"`
	Token    string    `json:"token"`
	Reply    string    `json:"reply,omitempty"` // by name; "accepted" makes the token normal again
	Do       string    `json:"do,omitempty"`    // an act instead of a reply
	For      Interval  `json:"for,omitempty"`   // of the act
	Since    time.Time `json:"since"`
	Times    int       `json:"times,omitempty"`
	Home     string    `json:"home,omitempty"`
	Prefix   bool      `json:"prefix,omitempty"`
}

func (o *TokenOrder) plan() (func(*Devices), error) {
	if o == nil {
		return nil, errors.New("the token is missing")
	}
	p, ok := ParseProvider(o.Provider)
	if !ok || p != APNS && p != FCM {
		return nil, errors.New("provider: apns or fcm")
	}
	if o.Token == "" || o.Times < 0 {
		return nil, errors.New("token is required, times is not negative")
	}
	m := Mark{Since: o.Since, Times: o.Times, Home: o.Home}
	if o.Do != "" {
		_, a, err := act(o.Do, o.Provider, o.Reply)
		a.For = time.Duration(o.For)
		if err == nil {
			err = a.Validate(p)
		}
		if err != nil {
			return nil, err
		}
		m.Act = &a
	} else if o.Reply != "" {
		if m.Reply, ok = ParseReply(p, o.Reply); !ok {
			return nil, fmt.Errorf("reply: %s has no answer of that name", p)
		}
	}
	if m.Reply.Accepted() {
		m.Reply = NoReply
	}
	switch {
	case o.Prefix:
		return func(d *Devices) { d.SetPrefix(p, o.Token, m) }, nil
	case m.Reply == NoReply && m.Act == nil && m.Home == "":
		return func(d *Devices) { d.Clear(p, o.Token) }, nil
	}
	return func(d *Devices) { d.Set(p, o.Token, m) }, nil
}

// FaultOrder sets what goes wrong by chance at a provider.
type FaultOrder struct {
	Provider       string        `json:"provider"`
	Internal       float64       `json:"internal,omitempty"`
	Unavailable    float64       `json:"unavailable,omitempty"`
	TooMany        float64       `json:"too_many,omitempty"`
	BadGateway     float64       `json:"bad_gateway,omitempty"`
	Chances        []ChanceOrder `json:"chances,omitempty"`
	RetryAfter     Interval      `json:"retry_after,omitempty"`
	RetryAfterDate bool          `json:"retry_after_date,omitempty"`
	Latency        string        `json:"latency,omitempty"` // as ParseDistribution reads it
	Jitter         Interval      `json:"jitter,omitempty"`
}

// ChanceOrder is a Chance.
type ChanceOrder struct {
	Probability float64  `json:"probability"`
	Do          string   `json:"do"`
	Reply       string   `json:"reply,omitempty"`
	For         Interval `json:"for,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	Unprocessed int      `json:"unprocessed,omitempty"`
}

func (o *FaultOrder) faults() (Provider, Faults, error) {
	if o == nil {
		return Nobody, Faults{}, errors.New("faults are missing")
	}
	p, ok := ParseProvider(o.Provider)
	if !ok || p == Nobody {
		return p, Faults{}, errors.New("provider: apns, fcm or oauth")
	}
	f := Faults{
		Internal: o.Internal, Unavailable: o.Unavailable, TooMany: o.TooMany, BadGateway: o.BadGateway,
		RetryAfter: time.Duration(o.RetryAfter), RetryAfterDate: o.RetryAfterDate, Jitter: time.Duration(o.Jitter),
	}
	if o.Latency != "" {
		d, err := ParseDistribution(o.Latency)
		if err != nil {
			return p, f, err
		}
		f.SetLatency(d)
	}
	for _, c := range o.Chances {
		_, a, err := act(c.Do, o.Provider, c.Reply)
		if err != nil {
			return p, f, err
		}
		a.For, a.Reason, a.Unprocessed = time.Duration(c.For), c.Reason, c.Unprocessed
		f.Chances = append(f.Chances, Chance{c.Probability, a})
	}
	return p, f, f.validateFor(p)
}

// RuleOrder is Rules as JSON.
type RuleOrder struct {
	OneStream         bool       `json:"one_stream,omitempty"`
	AdaptiveStreams   bool       `json:"adaptive_streams,omitempty"`
	BadTokens         LimitOrder `json:"bad_tokens"`
	UpdatesPerAddress bool       `json:"updates_per_address,omitempty"`
	PerDevice         LimitOrder `json:"per_device"`
	ProjectQuota      LimitOrder `json:"project_quota"`
	QuotaRetryAfter   bool       `json:"quota_retry_after,omitempty"`
	QuotaHeaders      string     `json:"quota_headers,omitempty"` // ratelimit, older or x-ratelimit
	DeviceQuota       LimitOrder `json:"device_quota"`
	DeviceQuotaLong   LimitOrder `json:"device_quota_long"`
	TopicQuota        LimitOrder `json:"topic_quota"`
	Streams           int        `json:"streams,omitempty"`
	Idle              Interval   `json:"idle,omitempty"`
	Pings             LimitOrder `json:"pings"`
	Dials             LimitOrder `json:"dials"`
	DialsRefused      Interval   `json:"dials_refused,omitempty"`

	Recovery *RecoveryOrder `json:"recovery,omitempty"`
}

// RecoveryOrder is a Recovery:
// {"provider":"fcm","down":"30s","full":10000,"start":0.1,"growth":0.1,"falls":2}.
type RecoveryOrder struct {
	Provider string   `json:"provider"`
	Down     Interval `json:"down"`
	Full     int      `json:"full"`
	Start    float64  `json:"start"`
	Growth   float64  `json:"growth"`
	Falls    float64  `json:"falls"`
}

// LimitOrder is a Limit: {"count":240,"per":"1m"}.
type LimitOrder struct {
	Count int      `json:"count"`
	Per   Interval `json:"per"`
}

func (o *RuleOrder) rules() Rules {
	limit := func(l LimitOrder) Limit { return Limit{l.Count, time.Duration(l.Per)} }
	return Rules{
		OneStream: o.OneStream, AdaptiveStreams: o.AdaptiveStreams, BadTokens: limit(o.BadTokens),
		UpdatesPerAddress: o.UpdatesPerAddress, PerDevice: limit(o.PerDevice), ProjectQuota: limit(o.ProjectQuota),
		QuotaRetryAfter: o.QuotaRetryAfter, QuotaHeaders: QuotaHeaders(o.QuotaHeaders), DeviceQuota: limit(o.DeviceQuota), DeviceQuotaLong: limit(o.DeviceQuotaLong),
		TopicQuota: limit(o.TopicQuota), Streams: o.Streams, Idle: time.Duration(o.Idle), Pings: limit(o.Pings),
		Dials: limit(o.Dials), DialsRefused: time.Duration(o.DialsRefused), Recovery: o.Recovery.recovery(),
	}
}

// recovery is what the order says; of nil none. An unknown provider is one that Validate
// rejects.
func (o *RecoveryOrder) recovery() Recovery {
	if o == nil {
		return Recovery{}
	}
	p, _ := ParseProvider(o.Provider)
	return Recovery{Provider: p, Down: time.Duration(o.Down), Full: o.Full, Start: o.Start, Growth: o.Growth, Falls: o.Falls}
}
