package limits

import (
	"fmt"
	"slices"
)

// rule is a Rule as it is applied: to hashes and milliseconds.
type rule struct {
	name      string
	nameHash  uint32
	per       Per
	algorithm Algorithm
	max       int
	window    int64 // ms; 0 = unit
	unit      unit

	lanes, channels, apps []uint16 // nil = all, here and below
	types, distinct       []uint32
	priorities            uint8 // bits
	segments              []string

	perType, perDevice, perApp               bool
	defers, countCritical, personal, matches bool // matches: it is about some apps, lanes, channels or priorities
	segmentMax                               map[string]int
}

func compile(rules []Rule) ([]rule, error) {
	names := map[string]bool{}
	out := make([]rule, len(rules))
	for i := range rules {
		r := &rules[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
		if names[r.Name] {
			return nil, fmt.Errorf("limits: two rules are named %s", r.Name)
		}
		names[r.Name] = true
		out[i] = rule{
			name: r.Name, nameHash: typeHash(r.Name), per: r.Per, algorithm: r.Algorithm, max: r.Max,
			window: r.Window.Milliseconds(), unit: calendarUnit(r.Calendar),
			lanes: hashes(r.Lanes, shortHash), channels: hashes(r.Channels, shortHash), apps: hashes(r.Apps, shortHash),
			types: hashes(r.Types, typeHash), distinct: hashes(r.Distinct, typeHash),
			segments: r.Segments, segmentMax: r.SegmentMax,
			perType: r.Per == PerUserType || r.Per == PerDeviceType, perDevice: r.Per == PerDeviceType, perApp: r.PerApp,
			defers: r.Over == Defer, countCritical: r.CountCritical, personal: r.Personal,
		}
		for _, p := range r.Priorities {
			out[i].priorities |= 1 << p
		}
		out[i].matches = out[i].priorities != 0 || len(r.Lanes)+len(r.Channels)+len(r.Apps) > 0
	}
	return out, nil
}

func hashes[H uint16 | uint32](names []string, hash func(string) H) []H {
	var out []H
	for _, name := range names {
		out = append(out, hash(name))
	}
	return out
}

// covers reports whether the rule counts an event of its subject. What a state
// of version 1 does not say of an event counts as if it fitted: never too few.
func (r *rule) covers(e *event) bool {
	if r.perDevice != e.device() || r.unit != 0 && e.flags&(inDays|inTimes) == inTimes || r.types != nil && !slices.Contains(r.types, e.kind) || e.priority() == critical && !r.countCritical {
		return false
	}
	return !r.matches || e.plain() || r.fits(e)
}

func (r *rule) fits(e *event) bool {
	return (r.priorities == 0 || r.priorities&(1<<e.priority()) != 0) &&
		(r.apps == nil || slices.Contains(r.apps, e.app)) &&
		(r.lanes == nil || slices.Contains(r.lanes, e.lane)) &&
		(r.channels == nil || slices.Contains(r.channels, e.channel))
}

// counts reports whether e stands against c, which the rule covers.
func (r *rule) counts(e, c *event) bool {
	return r.covers(e) &&
		(!r.perType || e.kind == c.kind || r.shared(e.kind) && r.shared(c.kind)) &&
		(!r.perApp || e.app == c.app || e.plain()) &&
		(!r.perDevice || e.extra == c.extra)
}

// shared reports whether the type has no count of its own.
func (r *rule) shared(kind uint32) bool {
	return r.distinct != nil && !slices.Contains(r.distinct, kind)
}

// reach is the stretch [from, to) of the times that the rule looks at for a
// notification at time t.
func (r *rule) reach(t int64, c *calendar) (from, to int64) {
	switch {
	case r.unit != 0:
		w := c.window(r.unit, t)
		return w.start, w.end
	case r.algorithm == SlidingCounter:
		start := floor(t, r.window)
		return start - r.window, start + 2*r.window
	}
	return t - r.window + 1, t + r.window
}

// room answers for one more at time t, of times within reach, as the algorithms
// do.
func (r *rule) room(times []int64, t, end int64, limit int) (current int, next int64) {
	switch {
	case r.unit != 0:
		return fixedWindow(times, t, end, limit)
	case r.algorithm == SlidingCounter:
		return slidingCounter(times, t, r.window, limit)
	}
	return slidingLog(times, t, r.window, limit)
}

// until is when the rule needs an event of time t no more, Unix ms. One of a
// calendar is kept for one window more: a record that was held over midnight is
// still known then.
func (r *rule) until(t int64, c *calendar) int64 {
	_, end := r.reach(t, c)
	if r.unit != 0 {
		w := c.window(r.unit, t)
		end += w.end - w.start
	}
	return end + skew.Milliseconds()
}

// longest is for how long the rule can need an event, ms.
func (r *rule) longest() int64 {
	span := r.window
	switch {
	case r.unit != 0:
		span = 2 * maxDay.Milliseconds()
	case r.algorithm == SlidingCounter:
		span = 2 * r.window
	}
	return span + skew.Milliseconds()
}
