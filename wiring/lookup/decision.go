package lookup

import (
	"context"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/limits/senders"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/wiring"
	"github.com/pushfleet/pushfleet/wiring/reach"
)

// Decision is what would become of a notification now. Its JSON keys are those of
// `pushctl limits check`.
type Decision struct {
	Sent      bool       `json:"sent"`
	State     string     `json:"state"` // that its row would have; empty = it would be sent
	Reason    string     `json:"reason"`
	Words     string     `json:"words"`
	Until     *time.Time `json:"until"` // when it would be asked about again
	Dimension string     `json:"dimension,omitempty"`
	Rule      string     `json:"rule,omitempty"`
	Current   int        `json:"current"`
	Limit     int        `json:"limit"`
	ResetAt   *time.Time `json:"reset_at"`
	Devices   int        `json:"devices"` // that it would be sent to
	Refused   int        `json:"devices_refused"`
}

// Uses says how each rule of limits stands for the notification.
func (a *Asked) Uses(ctx context.Context) ([]limits.Use, error) {
	limiter, err := a.limiter(ctx)
	if err != nil || limiter == nil {
		return nil, err
	}
	return limiter.Usage(ctx, &a.request)
}

// Decide takes the notification through the stages of its lane, as a worker does. Nothing is
// stored, and nothing is spent.
func (a *Asked) Decide(ctx context.Context) (Decision, error) {
	limiter, err := a.limiter(ctx)
	if err != nil {
		return Decision{}, err
	}
	buckets, err := a.buckets(ctx)
	if err != nil {
		return Decision{}, err
	}
	c := a.l.config
	o, err := wiring.Quiet(c)
	if err != nil {
		return Decision{}, &reach.ConfigError{Err: err}
	}
	b := &pipeline.Batch{Items: []pipeline.Item{{Message: a.Message, Timestamp: push.At(a.now), FirstSeen: push.At(a.now), Expires: push.At(a.now.Add(a.lane.GreatestAge))}}}
	policy, asks := quiet.New(o), &preview{Limiter: limiter}
	limited := &stages.Limits{Lane: a.lane.Name, Zone: policy.Zone,
		Segments: func(names []string, _ string, _ *push.User) []string { return append(names, a.request.Segments...) }}
	if limiter != nil {
		limited.Limiter = func() stages.Limiter { return asks }
	}
	if buckets != nil {
		limited.Senders = func() stages.Senders { return &untouched{buckets, asks} }
	}
	way := []pipeline.Stage{
		&stages.Preferences{Users: known{a.User}, Rules: stages.Rules{Consent: wiring.Consent(c, *a.lane), Quiet: policy}.Fixed()},
		&stages.Devices{},
		limited,
	}
	for _, stage := range way {
		if err := stage.Apply(ctx, b); err != nil {
			return Decision{}, err
		}
	}
	return decisionOf(&b.Items[0], asks.last), nil
}

// decisionOf says what the stages have decided; d is the last answer of limits.
func decisionOf(it *pipeline.Item, d limits.Decision) Decision {
	v := Decision{Sent: it.Verdict == push.Undecided, Dimension: string(d.Dimension), Rule: d.Rule, Current: d.Current, Limit: d.Limit}
	for i := range it.Deliveries {
		if it.Deliveries[i].Verdict == push.Undecided {
			v.Devices++
		} else {
			v.Refused++
		}
	}
	if !d.ResetAt.IsZero() {
		v.ResetAt = &d.ResetAt
	}
	if !v.Sent {
		v.State, v.Reason = it.Verdict.State().String(), strings.TrimSuffix(string(it.Reason)+":"+it.Detail, ":") // as status rows have it
		v.Words = explain.Reason(string(it.Reason), it.Detail)
	}
	if it.Verdict == push.Deferred {
		v.Until = &it.NotBefore
	}
	return v
}

// limiter is that of the configuration; nil without rules.
func (a *Asked) limiter(ctx context.Context) (*limits.Limiter, error) {
	rules := wiring.Rules(a.l.config)
	if len(rules) == 0 {
		return nil, nil
	}
	log, err := a.l.servers.DeviceLog(ctx)
	if err != nil {
		return nil, err
	}
	l, err := limits.New(nil, rules, wiring.LimitsOptions(a.l.config, log)...) // it is only asked what it needs no Redis for
	if err != nil {
		return nil, &reach.ConfigError{Err: err}
	}
	return l, nil
}

// buckets are the limits of senders; nil = there are none.
func (a *Asked) buckets(ctx context.Context) (*senders.Limits, error) {
	rules := wiring.SenderRules(a.l.config)
	if len(rules) == 0 {
		return nil, nil
	}
	client, err := a.l.servers.Redis(ctx)
	if err != nil {
		return nil, err
	}
	l, err := senders.New(client, rules, nil)
	if err != nil {
		return nil, &reach.ConfigError{Err: err}
	}
	return l, nil
}

// known is stages.Users of the one user that was read.
type known struct{ user push.User }

func (k known) Fetch(_ context.Context, _ []string, out []*push.User) error {
	for _, u := range out {
		*u = k.user
	}
	return nil
}

// preview is stages.Limiter that stores nothing. It keeps the last answer.
type preview struct {
	*limits.Limiter
	last limits.Decision
}

func (p *preview) DecideWith(ctx context.Context, reqs []*limits.Request, from limits.SenderLimits) error {
	for _, r := range reqs {
		if r.Exempt {
			r.Decision = limits.Decision{Allowed: true}
		} else if err := p.Preview(ctx, r); err != nil {
			return err
		}
		if r.Allowed && from != nil {
			if err := from.Decide(ctx, []*limits.Request{r}); err != nil {
				return err
			}
		}
		p.last = r.Decision
	}
	return nil
}

// untouched is stages.Senders that takes no token. It leaves the last answer where
// preview does: without rules of recipients it alone is asked.
type untouched struct {
	*senders.Limits
	preview *preview
}

func (u *untouched) Decide(ctx context.Context, reqs []*limits.Request) error {
	err := u.Preview(ctx, reqs)
	for _, r := range reqs {
		u.preview.last = r.Decision
	}
	return err
}
