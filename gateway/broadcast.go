package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
)

// AppUsers says who uses an app, as audiences.Store does.
type AppUsers interface {
	// Since is since when a user is noted as one of an app; there is false if the user is not.
	Since(ctx context.Context, app, user string) (since time.Time, there bool, err error)
}

// broadcast answers POST /v1/apps/{app}/messages: one job, for all users of the app.
func (g *Gateway) broadcast(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	return g.sendMany(w, r, c, func(context.Context) (*audience, *Problem) {
		app := r.PathValue("app")
		switch {
		case g.o.Fanouts.Users == nil:
			return nil, noAudiences()
		case !c.has(app):
			return nil, newProblem(codeForeignApp, "this key is not for the app")
		}
		return usersOf(app), nil
	})
}

func noAudiences() *Problem {
	return newProblem(codeNotConfigured, "this gateway sends to no users of apps (gateway.audiences)")
}

// usersOf is the audience of a message to all users of an app. How many those are is not
// known, so that it has as many parts as there can be.
func usersOf(app string) *audience {
	a := &audience{app: app, priority: push.Medium, ceiling: push.Critical, to: fanout.To{Kind: fanout.OfApp, Name: app, Parts: fanout.Slices}}
	a.words.receiver = "a message to all users of an app names no receiver"
	a.words.app = "another app than the path's"
	return a
}

// reasonNoMember is that of a user who is not noted in a message's audience.
const reasonNoMember = "not_in_audience"

// uses is what is noted of a user and the app that a message is for. Since is by the clock of
// the registry, and a page reads the same: who is noted later is passed over.
func (g *Gateway) uses(ctx context.Context, y *Why, j *fanout.Job, user string) (member, *Problem) {
	if g.o.Fanouts.Users == nil {
		return member{}, noAudiences()
	}
	since, there, err := g.o.Fanouts.Users.Since(ctx, j.App, user)
	if err != nil {
		g.o.Log.Warn("who uses an app cannot be read", "error", err)
		return member{}, newProblem(codeStatusAway, "Cassandra does not say whether the user uses the app; the message goes on").of(y.ID).after(2)
	}
	m := member{"", true, "was noted as a user of the app when the message was accepted"}
	state := "member"
	switch {
	case !there: // or was when the page was read, and is erased
		state, m = "none", member{reasonNoMember, false, "is not noted as a user of the app: no device of it was registered, or the user is erased"}
	case since.After(j.Accepted):
		m = member{fanout.SkipLater.String(), true, "was noted as a user of the app after the message was accepted"}
	case j.To.Kind == fanout.OfSegment:
		m = member{reasonNoSegment, false, "is a user of the app; who was in segment " + j.To.Name + " when this part was worked on is not kept"}
	}
	y.step(stepAudience, state, since, m.meaning).Reason = m.reason
	return m, nil
}
