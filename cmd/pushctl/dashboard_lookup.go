package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

// dashboardLookups are the look-ups of the page: what `pushctl status`, `devices get`,
// `limits get` and `limits check` say. Called by one goroutine at a time, as app demands.
type dashboardLookups struct{ a *app }

// Notification implements dashboard.Lookups.
func (l *dashboardLookups) Notification(ctx context.Context, id string) (explain.Notification, error) {
	return l.a.explainID(ctx, id)
}

// User implements dashboard.Lookups: the way of a notification, step by step.
func (l *dashboardLookups) User(ctx context.Context, q dashboard.Question) (dashboard.Answers, error) {
	f := notificationFlags{lane: q.Lane, app: q.App, messageType: q.Type, sender: q.Sender, priority: q.Priority}
	if f.messageType == "" {
		f.messageType = "default"
	}
	asked, err := l.a.ask(ctx, q.User, &f)
	if err != nil {
		return dashboard.Answers{}, badQuestion(err)
	}
	answers := dashboard.Answers{User: q.User}
	answers.Steps = append(devicesStep(asked), preferencesStep(&asked.user.Preferences))
	limited, err := l.limits(ctx, asked)
	if err != nil {
		return answers, badQuestion(err)
	}
	answers.Steps = append(answers.Steps, limited...)
	if q.Message != "" {
		message, err := fanout.ParseMessageID(q.Message)
		if err != nil {
			return answers, &dashboard.BadQuestion{Err: err}
		}
		n, err := l.Notification(ctx, fanout.ID(message, q.User))
		if err != nil {
			return answers, err
		}
		answers.Notification = &n
	}
	return answers, nil
}

// badQuestion tells apart what the asker can mend. Its words are those of flags.
func badQuestion(err error) error {
	if _, usage := err.(usageError); usage {
		return &dashboard.BadQuestion{Err: err}
	}
	return err
}

// devicesStep names the user's devices with the app, by the hashes of their tokens.
func devicesStep(q *asked) (steps []dashboard.Step) {
	for i := range q.user.Devices {
		if d := &q.user.Devices[i]; d.App == q.message.App {
			steps = append(steps, dashboard.Step{Step: "device", Says: fmt.Sprintf("%s %s was registered", d.Platform, d.Hash), At: d.RegisteredAt.UTC()})
		}
	}
	if len(steps) == 0 {
		steps = append(steps, dashboard.Step{Step: "device", Says: explain.Reason(string(push.NoDevice), "") + " " + q.message.App, Bad: true})
	}
	return steps
}

// preferencesStep says what the user forbids.
func preferencesStep(p *push.Preferences) dashboard.Step {
	var says []string
	is := func(yes bool, text string) {
		if yes {
			says = append(says, text)
		}
	}
	is(p.Blocked, "blocked: nothing at all")
	is(p.OptOutAll, "opted out of everything")
	is(len(p.Channels) > 0, "opted out of the channels "+strings.Join(p.Channels, ", "))
	is(len(p.Types) > 0, "opted out of the types "+strings.Join(p.Types, ", "))
	is(len(p.Senders) > 0, "opted out of the senders "+strings.Join(p.Senders, ", "))
	for _, h := range p.Quiet {
		is(true, "quiet hours "+quietText(h))
	}
	if len(says) == 0 {
		says = []string{"the user forbids nothing"}
	}
	return dashboard.Step{Step: "preferences", Says: strings.Join(says, "; "), Bad: p.Blocked || p.OptOutAll}
}

// limits says how each rule stands, and what would become of a notification now.
func (l *dashboardLookups) limits(ctx context.Context, q *asked) (steps []dashboard.Step, err error) {
	limiter, err := l.a.limiter(ctx, q)
	if err != nil {
		return nil, err
	}
	if limiter != nil {
		uses, err := limiter.Usage(ctx, &q.request)
		if err != nil {
			return nil, err
		}
		for _, u := range uses {
			step := dashboard.Step{Step: "limit " + u.Rule, Says: fmt.Sprintf("%d of %d used", u.Current, u.Limit), Bad: !u.Room}
			if !u.ResetAt.IsZero() {
				step.Says, step.At = step.Says+", begins anew", u.ResetAt.UTC()
			}
			steps = append(steps, step)
		}
	}
	buckets, err := l.a.buckets(ctx, q)
	if err != nil {
		return nil, err
	}
	it, decided, err := q.through(ctx, limiter, buckets)
	if err != nil {
		return nil, err
	}
	v := explainCheck(it, decided).Value.(checkAnswer)
	now := dashboard.Step{Step: "a notification now", Says: fmt.Sprintf("would be sent to %d devices", v.Devices), Bad: !v.Sent}
	if !v.Sent {
		now.Says = strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", v.State, v.Reason, v.Words), ": ")
		if until := v.Until; until != nil {
			now.At = until.UTC()
		} else if v.ResetAt != nil {
			now.At = v.ResetAt.UTC()
		}
	}
	return append(steps, now), nil
}
