package worker

import (
	"context"
	"fmt"
	"strings"

	"github.com/pushfleet/pushfleet/configs"
	"github.com/pushfleet/pushfleet/fanout"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/segments"
)

// UserRecords reads users' records, as users.Reader does.
type UserRecords interface {
	Fetch(ctx context.Context, owners []string, out []*push.User) error
}

// WithSegments is an audience that also knows who is in a segment: those of the users of an
// app, whom a knows, who are in it by the set of then. records are read for segments whose
// users have their numbers there.
func WithSegments(a fanout.Audience, set func() *segments.Set, records UserRecords) fanout.Audience {
	return segmentAudience{a, set, records}
}

type segmentAudience struct {
	fanout.Audience
	set     func() *segments.Set
	records UserRecords
}

// Page implements fanout.Audience. Of users who are not in the segment nothing is told, but
// that the page ends with one of them: a part that has to stop goes on from there, however
// few of its users are in the segment.
func (a segmentAudience) Page(ctx context.Context, j *fanout.Job, part int, after string, limit int) ([]fanout.Member, error) {
	if j.To.Kind != fanout.OfSegment {
		return a.Audience.Page(ctx, j, part, after, limit)
	}
	group, segment, err := a.find(j.To.Name)
	if err != nil {
		return nil, err
	}
	all := *j
	all.To.Kind, all.To.Name = fanout.OfApp, j.App
	members, err := a.Audience.Page(ctx, &all, part, after, limit)
	if err != nil || len(members) == 0 {
		return nil, err
	}
	in, err := a.in(ctx, group.Numbers(), segment.Users, members)
	if err != nil {
		return nil, err
	}
	if last := members[len(members)-1].User; len(in) == 0 || in[len(in)-1].User != last {
		in = append(in, fanout.Member{User: last, Passed: true})
	}
	return in, nil
}

// find finds a segment in the newest set. One that is not there may come back with the next.
func (a segmentAudience) find(name string) (*segments.Group, segments.Segment, error) {
	set := a.set()
	first, second, _ := strings.Cut(name, "/")
	if group := set.Group(first); group != nil {
		if s, there := group.Segment(second); there {
			return group, s, nil
		}
	}
	return nil, segments.Segment{}, fmt.Errorf("segment %s is not in version %d: %w", name, set.Version(), fanout.ErrNoAudience)
}

// in are those members who are among users. A member whose number is not known is not.
func (a segmentAudience) in(ctx context.Context, n segments.Numbering, users segments.Users, members []fanout.Member) ([]fanout.Member, error) {
	records := make([]push.User, len(members))
	if n == segments.ByRecord {
		owners, out := make([]string, len(members)), make([]*push.User, len(members))
		for i := range members {
			owners[i], out[i] = members[i].User, &records[i]
		}
		err := a.records.Fetch(ctx, owners, out)
		if ctx.Err() != nil { // the chunk is another process's, or will be
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", fanout.ErrNoAudience, err) // the chunk waits, and keeps nobody waiting
		}
	}
	var in []fanout.Member
	for i := range members {
		p := &records[i].Profile
		if number, known := n.Of(members[i].User, p.Number, p.HasNumber); known && users.Contains(number) {
			in = append(in, members[i])
		}
	}
	return in, nil
}

// sendsToSegments reports whether messages can be sent to users in a segment.
func sendsToSegments(c *configs.Config) bool {
	return c.Gateway.Audiences && c.Segments.Source != ""
}
