package worker

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/gateway"
	"github.com/pushfleet/pushfleet/wiring"
)

// fanoutsOf are the messages of a gateway for many receivers; nil = it takes
// none. They are in the tables of topics, which topicsOf has made.
func (g *openGateway) fanoutsOf(topics gateway.Topics) *gateway.Fanouts {
	if !g.Config.Gateway.Fanout.Enabled {
		return nil
	}
	kinds := kindsOfAudiences{fanout.OfTopic: TopicAudience(topics)}
	f := &gateway.Fanouts{Records: g.Fanouts, Partitions: g.partitionsOf, Ages: wiring.FanoutAges(g.Config), Audience: kinds}
	if g.Config.Gateway.Audiences {
		users := g.AppUsers
		if users == nil {
			g.users = audiences.New(audiences.Options{Tables: g.tables})
			users = g.users
		}
		f.Users, kinds[fanout.OfApp] = users, AppAudience(users)
		if g.names != nil {
			f.Segments, kinds[fanout.OfSegment] = g.names, perhaps{AppAudience(users)}
		}
	}
	if f.Records == nil {
		g.notes = fanout.NewTableNotes(g.tables)
		f.Records = g.notes
	}
	return f
}

// partitionsOf is how many partitions a lane's topic has.
func (g *openGateway) partitionsOf(ctx context.Context, lane string) (int32, error) {
	l := g.Config.Lane(lane)
	if l == nil {
		return 0, fmt.Errorf("there is no lane %s", lane)
	}
	ends, err := g.admin.EndOffsets(ctx, l.Topic)
	if err == nil && len(ends) == 0 {
		err = fmt.Errorf("topic %s has no partitions", l.Topic)
	}
	return int32(len(ends)), err
}
