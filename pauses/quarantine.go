package pauses

import (
	"context"
	"fmt"
	"strings"

	"github.com/pushfleet/pushfleet/gates"
	"github.com/pushfleet/pushfleet/push"
)

var _ gates.QuarantineStore = (*Store)(nil)

// between stands between a route and an origin; neither begins with it.
const between = " "

// member is what stands in Redis for an origin that is stopped on a route. A route has no
// blank in its platform, and an app's name none by its grammar.
func member(r push.Route, o push.Origin) string { return r.String() + between + o.String() }

// Quarantine implements gates.QuarantineStore.
func (s *Store) Quarantine(ctx context.Context, qs []gates.Quarantined) error {
	if len(qs) == 0 {
		return nil
	}
	args := []any{gates.LongestQuarantine.Milliseconds()}
	for _, q := range qs {
		args = append(args, min(q.Left, gates.LongestQuarantine).Milliseconds(), member(q.Route, q.Origin))
	}
	return s.write(ctx, s.stopped, args)
}

// Quarantined implements gates.QuarantineStore. What it cannot read is left out, and told
// to the log now and then.
func (s *Store) Quarantined(ctx context.Context) (qs []gates.Quarantined, err error) {
	answer, err := s.ask(ctx, s.stopped)
	if len(answer) == 0 || err != nil {
		return nil, err
	}
	err = s.members(s.stopped, answer, func(member, score string, now float64) bool {
		route, origin, _ := strings.Cut(member, between)
		q := gates.Quarantined{}
		var known, named, timed bool
		q.Route, known = push.ParseRoute(route)
		q.Origin, named = push.ParseOrigin(origin)
		q.Left, timed = left(score, now, gates.LongestQuarantine)
		if ok := known && named && timed; !ok {
			return false
		}
		qs = append(qs, q)
		return true
	})
	return qs, err
}

// Release ends a quarantine on a route, for all workers within a second of theirs. It
// reports whether there was one.
func (s *Store) Release(ctx context.Context, r push.Route, o push.Origin) (bool, error) {
	n, err := s.client.ZRem(ctx, s.stopped, member(r, o)).Result()
	if err != nil {
		return false, fmt.Errorf("writing %s: %w", s.stopped, err)
	}
	return n > 0, nil
}
