package worker

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/audiences"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/gateway"
)

// kindsOfAudiences asks of each job the audience of its kind.
type kindsOfAudiences map[string]fanout.Audience

// Page implements fanout.Audience. A job of a kind that is not there waits for a process that
// has it.
func (k kindsOfAudiences) Page(ctx context.Context, j *fanout.Job, part int, after string, limit int) ([]fanout.Member, error) {
	a := k[j.To.Kind]
	if a == nil {
		return nil, fmt.Errorf("an audience of the kind %q (%s needs gateway.audiences, %s segments.source too): %w", j.To.Kind, fanout.OfApp, fanout.OfSegment, fanout.ErrNoAudience)
	}
	return a.Page(ctx, j, part, after, limit)
}

// AppUsers reads who uses an app, as audiences.Store does.
type AppUsers interface {
	gateway.AppUsers
	Page(ctx context.Context, app string, first, end int, after string, limit int) ([]audiences.Member, error)
}

// AppAudience is the users of apps.
func AppAudience(u AppUsers) fanout.Audience { return appAudience{u} }

type appAudience struct{ users AppUsers }

// Page implements fanout.Audience. Who was noted after the message was accepted does not get
// it, whenever the page is read.
func (a appAudience) Page(ctx context.Context, j *fanout.Job, part int, after string, limit int) ([]fanout.Member, error) {
	first, end := j.To.Slices(part)
	list, err := a.users.Page(ctx, j.To.Name, first, end, after, min(limit, audiences.MaxPage))
	if err != nil {
		return nil, err
	}
	members := make([]fanout.Member, len(list))
	for i := range list {
		members[i] = fanout.Member{User: list[i].User, Since: list[i].Since}
	}
	return members, nil
}
