package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/limits/senders"
	"github.com/pushfleet/pushfleet/pipeline"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/quiet"
	"github.com/pushfleet/pushfleet/stages"
	"github.com/pushfleet/pushfleet/wiring"
)

// checkAnswer is the JSON answer of limits check.
type checkAnswer struct {
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

func newLimitsCheckCommand(a *app) *cobra.Command {
	var f notificationFlags
	cmd := &cobra.Command{
		Use:   "check USER",
		Short: "Would a notification be sent to a user now, and if not, why?",
		Long: `Take a made-up notification through what a worker asks before it sends: the user's preferences and quiet hours,
the devices, limits.rules and, with --sender, limits.senders. Nothing is stored and nothing is spent. Routes are not
asked: see pushctl routes and the metrics.

Exit status: 0 it would be sent, 1 it would not.`,
		Example: "  pushctl limits check u42 --lane promotional --type news --sender campaigns\n  pushctl limits check u42 --priority critical --sender otp -o json | jq -r .reason",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := a.ask(cmd.Context(), args[0], &f)
			if err != nil {
				return err
			}
			limiter, err := a.limiter(cmd.Context(), q)
			if err != nil {
				return err
			}
			buckets, err := a.buckets(cmd.Context(), q)
			if err != nil {
				return err
			}
			it, decided, err := q.through(cmd.Context(), limiter, buckets)
			if err != nil {
				return err
			}
			ans := explainCheck(it, decided)
			if err := a.show(ans); err != nil {
				return err
			}
			if it.Verdict != push.Undecided {
				return errDifference
			}
			return nil
		},
	}
	f.add(cmd.Flags())
	return cmd
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

// buckets are the limits of senders; nil = there are none.
func (a *app) buckets(ctx context.Context, q *asked) (*senders.Limits, error) {
	rules := wiring.SenderRules(q.config)
	if len(rules) == 0 {
		return nil, nil
	}
	client, err := a.reachRedis(ctx)
	if err != nil {
		return nil, err
	}
	l, err := senders.New(client, rules)
	if err != nil {
		return nil, usageError{err}
	}
	return l, nil
}

// through takes the notification through the stages of its lane, as a worker does.
// limiter is nil without rules, and so is buckets.
func (q *asked) through(ctx context.Context, limiter *limits.Limiter, buckets *senders.Limits) (*pipeline.Item, limits.Decision, error) {
	o, err := wiring.Quiet(q.config)
	if err != nil {
		return nil, limits.Decision{}, usageError{err}
	}
	b := &pipeline.Batch{Items: []pipeline.Item{{Message: q.message, Timestamp: q.now, FirstSeen: q.now, Expires: q.now.Add(q.lane.GreatestAge)}}}
	policy, asks := quiet.New(o), &preview{Limiter: limiter}
	limited := &stages.Limits{Lane: q.lane.Name, Zone: policy.Zone,
		Segments: func(names []string, _ string, _ *push.User) []string { return append(names, q.request.Segments...) }}
	if limiter != nil {
		limited.Limiter = func() stages.Limiter { return asks }
	}
	if buckets != nil {
		limited.Senders = func() stages.Senders { return &untouched{buckets, asks} }
	}
	way := []pipeline.Stage{
		&stages.Preferences{Users: known{q.user}, Rules: stages.Rules{Consent: wiring.Consent(q.config, *q.lane), Quiet: policy}.Fixed()},
		&stages.Devices{},
		limited,
	}
	for _, stage := range way {
		if err := stage.Apply(ctx, b); err != nil {
			return nil, limits.Decision{}, err
		}
	}
	return &b.Items[0], asks.last, nil
}

func explainCheck(it *pipeline.Item, d limits.Decision) terminal.Answer {
	v := checkAnswer{Sent: it.Verdict == push.Undecided, Dimension: string(d.Dimension), Rule: d.Rule, Current: d.Current, Limit: d.Limit}
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
	what, until := "it would be sent", ""
	if !v.Sent {
		v.State, v.Reason = it.Verdict.State().String(), reasonWords(it.Reason, it.Detail)
		v.Words = explain.Reason(string(it.Reason), it.Detail)
		what = v.State + ": " + v.Words
	}
	if it.Verdict == push.Deferred {
		v.Until = &it.NotBefore
		until = it.NotBefore.Format(time.RFC3339)
	}
	t := terminal.Table{Columns: []string{"now", "reason", "until", "devices", "refused devices"}}
	t.Add(what, v.Reason, until, strconv.Itoa(v.Devices), strconv.Itoa(v.Refused))
	return terminal.Answer{Value: v, Table: t}
}
