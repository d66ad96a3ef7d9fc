package gateway

import (
	"context"
	"net/http"

	"github.com/pushfleet/pushfleet/fanout"
)

// Segments says which segments users can be in, as segments.Names does.
type Segments interface {
	// Has reports whether there is a segment of a name such as lifecycle/new. known is false
	// as long as that cannot be told of any.
	Has(name string) (has, known bool)
}

// sendSegment answers POST /v1/apps/{app}/segments/{group}/{segment}/messages: one job, for
// the users of the app who are in the segment.
func (g *Gateway) sendSegment(w http.ResponseWriter, r *http.Request, c *Caller) *Problem {
	return g.sendMany(w, r, c, func(context.Context) (*audience, *Problem) {
		app, name := r.PathValue("app"), r.PathValue("group")+"/"+r.PathValue("segment")
		switch {
		case g.o.Fanouts.Users == nil:
			return nil, noAudiences()
		case g.o.Fanouts.Segments == nil:
			return nil, newProblem(codeNotConfigured, "this gateway knows no segments (segments.source)")
		case !c.has(app):
			return nil, newProblem(codeForeignApp, "this key is not for the app")
		}
		switch has, known := g.o.Fanouts.Segments.Has(name); {
		case !known:
			return nil, newProblem(codeStatusAway, "which segments there are could not be read yet: nothing was sent").after(2)
		case !has:
			return nil, newProblem(codeNoSegment, "there is no such segment in the newest file of segments")
		}
		return inSegment(app, name), nil
	})
}

// inSegment is the audience of a message to those users of an app who are in a segment.
func inSegment(app, name string) *audience {
	a := usersOf(app)
	a.to.Kind, a.to.Name = fanout.OfSegment, name
	a.words.receiver = "a message to users in a segment names no receiver"
	return a
}

// reasonNoSegment is that of a user of the app of whom it is not known whether he was in the
// segment when his page was read.
const reasonNoSegment = "not_in_segment"
