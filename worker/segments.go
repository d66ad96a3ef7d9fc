package worker

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pushfleet/pushfleet/configs"
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

// openSegments is that of openSegments for the rules of limits. check refuses a file that
// does not go with them.
func (g *group) openSegments(ctx context.Context, check func(*segments.Set) error) (*segmented, error) {
	watcher, done, err := openSegments(ctx, &g.Config.Segments, g.health, g.Metrics, segments.WatcherOptions{Check: check, Log: g.Log})
	if done != nil {
		g.opened = append(g.opened, done)
	}
	if watcher == nil {
		return nil, err
	}
	return &segmented{watcher}, err
}

// openSegments waits for the first file of segments, if there is a source of them: with
// none in use, nobody would be in a segment. Without a source there is no watcher. done, which
// may be nil, is to be called when the watcher is not used any more, also after an error.
func openSegments(ctx context.Context, c *configs.Segments, h *health, reg *prometheus.Registry, o segments.WatcherOptions) (w *segments.Watcher, done func(), err error) {
	source, done, err := wiring.Segments(c)
	if err != nil || source == nil {
		return nil, nil, err
	}
	o.Interval, o.MaxBytes, o.Metrics = c.Interval, int64(c.MaxBytes), segments.NewMetrics(reg)
	w = segments.NewWatcher(source, o)
	if err := connect(ctx, o.Log, h, "segments", source.String(), w.Poll); err != nil {
		return nil, done, err
	}
	return w, done, nil
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
