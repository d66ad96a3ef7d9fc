package worker

import (
	"context"
	"fmt"

	"github.com/pushfleet/pushfleet/limits"
	"github.com/pushfleet/pushfleet/push"
	"github.com/pushfleet/pushfleet/segments"
	"github.com/pushfleet/pushfleet/wiring"
)

// segmented knows which segments users are in, by the newest file of a source.
type segmented struct{ watcher *segments.Watcher }

// of is stages.Limits.Segments.
func (s *segmented) of(names []string, owner string, u *push.User) []string {
	return s.watcher.Set().AppendNames(names, owner, u.Profile.Number, u.Profile.HasNumber)
}

// openSegments waits for the first file of segments, if there is a source of them: with
// none in use, nobody would be in a segment. check refuses a file that does not go
// with the rules.
func (g *group) openSegments(ctx context.Context, check func(*segments.Set) error) (*segmented, error) {
	source, done, err := wiring.Segments(&g.Config.Segments)
	switch {
	case err != nil:
		return nil, err
	case source == nil:
		return nil, nil
	}
	g.opened = append(g.opened, done)
	c := &g.Config.Segments
	s := &segmented{segments.NewWatcher(source, segments.WatcherOptions{
		Interval: c.Interval, MaxBytes: int64(c.MaxBytes), Check: check, Metrics: segments.NewMetrics(g.Metrics), Log: g.Log,
	})}
	if err := connect(ctx, g.Log, g.health, "segments", source.String(), s.watcher.Poll); err != nil {
		return nil, err
	}
	return s, nil
}

// fits is rules.fits: no file comes in use between the look for the rules' segments and
// use.
func (s *segmented) fits(list []limits.Rule, use func()) error {
	return s.watcher.Hold(func(set *segments.Set) error {
		if err := missing(set, list); err != nil {
			return err
		}
		use()
		return nil
	})
}

// missing names a segment that rules name and set does not have.
func missing(set *segments.Set, rules []limits.Rule) error {
	for i := range rules {
		r := &rules[i]
		for _, name := range r.Segments {
			if !set.Has(name) {
				return fmt.Errorf("rule %s: there is no segment %s in version %d", r.Name, name, set.Version())
			}
		}
		for name := range r.SegmentMax {
			if !set.Has(name) {
				return fmt.Errorf("rule %s: there is no segment %s in version %d", r.Name, name, set.Version())
			}
		}
	}
	return nil
}
