package worker

import (
	"context"

	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/wiring"
)

// segmentsState is the name of segments in /readyz.
const segmentsState = "segments"

// openNames makes what knows which segments there are, if messages can be sent to users in
// one. It asks nothing yet.
func (g *openGateway) openNames() error {
	if !sendsToSegments(g.Config) {
		return nil
	}
	source, done, err := wiring.Segments(&g.Config.Segments)
	if err != nil {
		return &ConfigError{"segments", err}
	}
	g.names, g.closeNames = segments.NewNames(source, g.Config.Segments.Interval, nil), done
	g.aside.set(segmentsState, errNotYet)
	return nil
}

// watchNames reads which segments there are until ctx ends.
func (g *openGateway) watchNames(ctx context.Context) {
	if connect(ctx, g.Log, g.aside, segmentsState, g.Config.Segments.Source, g.names.Poll) == nil {
		checkStore(ctx, g.aside, segmentsState, g.names.Poll)
	}
}

// perhaps is an audience of which a gateway does not know who is in it: the users of the app,
// each as one who has left since. Then only those count who have a state.
type perhaps struct{ users fanout.Audience }

// Page implements fanout.Audience.
func (a perhaps) Page(ctx context.Context, j *fanout.Job, part int, after string, limit int) ([]fanout.Member, error) {
	all := *j
	all.To.Kind, all.To.Name = fanout.OfApp, j.App
	members, err := a.users.Page(ctx, &all, part, after, limit)
	for i := range members {
		members[i].Left = true
	}
	return members, err
}
