package dashboards

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pushfleet/pushfleet/dashboard"
	"github.com/pushfleet/pushfleet/explain"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/forms"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/wiring/lookup"
)

// answers are the look-ups of the page: what `pushctl status`, `devices get`, `limits get`
// and `limits check` say.
type answers struct{ *lookup.Lookups } // Notification too is dashboard.Lookups

// User implements dashboard.Lookups: the way of a notification, step by step.
func (l answers) User(ctx context.Context, q dashboard.Question) (dashboard.Answers, error) {
	found := dashboard.Answers{User: q.User}
	asked, err := l.Ask(ctx, lookup.Question{User: q.User, Lane: q.Lane, App: q.App, Type: q.Type, Sender: q.Sender, Priority: q.Priority})
	if wrong, is := errors.AsType[*lookup.QuestionError](err); is {
		return found, &dashboard.BadQuestion{Err: wrong}
	}
	if err != nil {
		return found, err
	}
	found.Steps = append(devicesStep(asked), preferencesStep(&asked.User.Preferences))
	limited, err := limitsSteps(ctx, asked)
	if err != nil {
		return found, err
	}
	found.Steps = append(found.Steps, limited...)
	if q.Message != "" {
		message, err := fanout.ParseMessageID(q.Message)
		if err != nil {
			return found, &dashboard.BadQuestion{Err: err}
		}
		n, err := l.Notification(ctx, fanout.ID(message, q.User))
		if err != nil {
			return found, err
		}
		found.Notification = &n
	}
	return found, nil
}

// devicesStep names the user's devices with the app, by the hashes of their tokens.
func devicesStep(q *lookup.Asked) (steps []dashboard.Step) {
	for i := range q.User.Devices {
		if d := &q.User.Devices[i]; d.App == q.Message.App {
			steps = append(steps, dashboard.Step{Step: "device", Says: fmt.Sprintf("%s %s was registered", d.Platform, d.Hash), At: d.RegisteredAt.UTC()})
		}
	}
	if len(steps) == 0 {
		steps = append(steps, dashboard.Step{Step: "device", Says: explain.Reason(string(push.NoDevice), "") + " " + q.Message.App, Bad: true})
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
		is(true, "quiet hours "+forms.QuietText(h))
	}
	if len(says) == 0 {
		says = []string{"the user forbids nothing"}
	}
	return dashboard.Step{Step: "preferences", Says: strings.Join(says, "; "), Bad: p.Blocked || p.OptOutAll}
}

// limitsSteps say how each rule stands, and what would become of a notification now.
func limitsSteps(ctx context.Context, q *lookup.Asked) (steps []dashboard.Step, err error) {
	uses, err := q.Uses(ctx)
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
	v, err := q.Decide(ctx)
	if err != nil {
		return nil, err
	}
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
