package limits

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/pushfleet/pushfleet/limits/model"
)

// entry is one notification, or one delivery of it, in the plain book of a user.
type entry struct {
	Request
	device uint32
	booked bool
	at     time.Time
}

// book is the plain implementation of rules for one user: it keeps everything
// that was allowed or waits.
type book struct {
	rules   []Rule
	entries []entry
	running map[Calendar][2]time.Time
}

func has[T comparable](list []T, x T) bool { return len(list) == 0 || slices.Contains(list, x) }

// about reports whether a rule counts an entry of its user.
func about(r Rule, e entry) bool {
	return (r.Per == PerDeviceType) == (e.device != 0) && has(r.Types, e.Type) && has(r.Apps, e.App) &&
		has(r.Lanes, e.Lane) && has(r.Channels, e.Channel) && has(r.Priorities, e.Priority)
}

// holds reports whether a rule is asked about an entry.
func holds(r Rule, e entry) bool {
	return about(r, e) && (len(r.Segments) == 0 || slices.ContainsFunc(e.Segments, func(s string) bool { return slices.Contains(r.Segments, s) }))
}

func together(r Rule, a, b entry) bool {
	own := func(e entry) string {
		if (r.Per == PerUserType || r.Per == PerDeviceType) && has(r.Distinct, e.Type) {
			return e.Type
		}
		return "shared"
	}
	return own(a) == own(b) && (!r.PerApp || a.App == b.App) && a.device == b.device
}

func (b *book) limit(r Rule, e entry) int {
	if r.Personal {
		for _, p := range e.Personal {
			if p.Name == r.Name || r.Per != PerUser && r.Per != PerSegment && p.Name == e.Type {
				return p.Max
			}
		}
	}
	for _, s := range e.Segments {
		if most, ok := r.SegmentMax[s]; ok {
			return most
		}
	}
	return r.Max
}

// windows are those of the zone, but the one that runs ends first.
func (b *book) windows(c Calendar, zone *time.Location) model.Windows {
	return func(at time.Time) (start, end time.Time) {
		in := at.In(zone)
		switch c {
		case Minute:
			start = at.Truncate(time.Minute)
			end = start.Add(time.Minute)
		case Hour:
			start = time.Date(in.Year(), in.Month(), in.Day(), in.Hour(), 0, 0, 0, zone)
			end = start.Add(time.Hour)
		case Day:
			start = time.Date(in.Year(), in.Month(), in.Day(), 0, 0, 0, 0, zone)
			end = start.AddDate(0, 0, 1)
		}
		running, ok := b.running[c]
		switch {
		case !ok:
		case at.Before(running[0]):
			if end.After(running[0]) {
				end = running[0]
			}
		case at.Before(running[1]):
			return running[0], running[1]
		case start.Before(running[1]):
			start = running[1]
		}
		return start, end
	}
}

func (b *book) algorithm(r Rule, e entry) model.Limit {
	most := b.limit(r, e)
	switch {
	case r.Algorithm == SlidingCounter:
		return model.SlidingCounter{Max: most, Window: r.Window}
	case r.Algorithm == FixedWindow:
		return model.FixedWindow{Max: most, Of: b.windows(r.Calendar, e.Zone)}
	case r.Algorithm == EventSet && r.Calendar != "":
		return model.EventSet{Max: most, Of: b.windows(r.Calendar, e.Zone)}
	case r.Algorithm == EventSet:
		return model.EventSet{Max: most, Window: r.Window}
	}
	return model.SlidingLog{Max: most, Window: r.Window}
}

func (b *book) fits(r Rule, e entry, at time.Time) bool {
	var counted []model.Entry
	for _, o := range b.entries {
		if about(r, o) && together(r, e, o) {
			counted = append(counted, model.Entry{ID: o.ID, At: o.at})
		}
	}
	return model.Fits(b.algorithm(r, e), counted, model.Entry{ID: e.ID, At: at})
}

// refusing are the rules without room for an entry at a time.
func (b *book) refusing(e entry, at time.Time) (out []Rule) {
	for _, r := range b.rules {
		if holds(r, e) && !b.fits(r, e, at) {
			out = append(out, r)
		}
	}
	return out
}

func (b *book) find(e entry) int {
	return slices.IndexFunc(b.entries, func(o entry) bool { return o.ID == e.ID && o.Channel == e.Channel && o.device == e.device })
}

func (b *book) spend(e entry, at time.Time) {
	if !slices.ContainsFunc(b.rules, func(r Rule) bool { return holds(r, e) }) {
		return
	}
	e.at = at
	b.entries = append(b.entries, e)
	for _, r := range b.rules {
		if r.Calendar != "" && about(r, e) {
			start, end := b.windows(r.Calendar, e.Zone)(at)
			if end.After(b.running[r.Calendar][1]) {
				b.running[r.Calendar] = [2]time.Time{start, end}
			}
		}
	}
}

// check holds an answer against the book, and enters it.
func (b *book) check(t *rapid.T, r *Request, stale bool) {
	e := entry{Request: *r, at: r.At}
	known := b.find(e)
	var delivered []entry
	for _, d := range r.Devices {
		on := e
		on.device = d.Hash
		refusing := b.refusing(on, r.At)
		if b.find(on) >= 0 {
			refusing = nil
		}
		// From an old state a delivery may pass that the user's rules refuse anyway.
		passed := !d.Refused && refusing != nil && !(stale && !r.Allowed && !r.Deferred)
		if d.Refused && refusing == nil || passed || d.Refused && !stale && d.Rule != refusing[0].Name {
			t.Fatalf("%s, device %d: refused %v by %q, the model says %v", r.ID, d.Hash, d.Refused, d.Rule, refusing)
		}
		if refusing == nil {
			delivered = append(delivered, on)
		}
	}
	if len(r.Devices) > 0 && delivered == nil {
		if r.Allowed || r.Deferred || r.Dimension != "device_type" && !stale {
			t.Fatalf("%s has no delivery left: %+v", r.ID, r.Decision)
		}
		if known >= 0 && b.entries[known].booked {
			b.entries = slices.Delete(b.entries, known, known+1)
		}
		return
	}
	switch {
	case known >= 0 && !b.entries[known].booked:
		if !r.Allowed {
			t.Fatalf("%s was allowed before: %+v", r.ID, r.Decision)
		}
	case known >= 0:
		if !b.redeem(t, r, e, known) {
			return
		}
	default:
		if refusing := b.refusing(e, r.At); refusing != nil {
			b.refused(t, r, e, refusing, stale)
			return
		}
		if !r.Allowed {
			t.Fatalf("%s at %v has room: %+v", r.ID, r.At, r.Decision)
		}
		b.spend(e, r.At)
	}
	for _, d := range delivered {
		if b.find(d) < 0 {
			b.spend(d, r.At)
		}
	}
}

func (b *book) redeem(t *rapid.T, r *Request, e entry, known int) (allowed bool) {
	was := b.entries[known]
	b.entries = slices.Delete(b.entries, known, known+1)
	at := r.At
	if !r.At.Before(was.at) {
		at = was.at // the test asks no later than a minute after
	} else if b.refusing(e, r.At) != nil {
		if r.Allowed || !r.Deferred || !r.At.Add(r.RetryAfter).Equal(was.at) {
			t.Fatalf("%s waits until %v: %+v at %v", r.ID, was.at, r.Decision, r.At)
		}
		b.entries = append(b.entries, was)
		return false
	}
	if !r.Allowed {
		t.Fatalf("%s had its place at %v: %+v at %v", r.ID, was.at, r.Decision, r.At)
	}
	b.spend(e, at)
	return true
}

func (b *book) refused(t *rapid.T, r *Request, e entry, refusing []Rule, stale bool) {
	names := func(rules []Rule) (out []string) {
		for _, rule := range rules {
			out = append(out, rule.Name)
		}
		return out
	}
	drops := slices.DeleteFunc(slices.Clone(refusing), func(rule Rule) bool { return rule.Over == Defer })
	first := append(drops, refusing...)
	if r.Allowed || !slices.Contains(names(first), r.Rule) || !stale && r.Rule != first[0].Name {
		t.Fatalf("%s at %v: %+v, the model says %q", r.ID, r.At, r.Decision, names(first))
	}
	never := slices.ContainsFunc(b.rules, func(rule Rule) bool { return holds(rule, e) && b.limit(rule, e) == 0 })
	if r.Deferred != (len(drops) == 0 && !never) {
		t.Fatalf("%s: deferred %v, refused by %q", r.ID, r.Deferred, names(refusing))
	}
	if !r.Deferred {
		return
	}
	// The place is the first at which all rules have room.
	at := r.At.Add(r.RetryAfter)
	for i := range 40 {
		before := at.Add(-time.Millisecond).Add(-(at.Sub(r.At) / 41 * time.Duration(i)).Truncate(time.Millisecond))
		if before.Before(r.At) {
			break
		}
		if b.refusing(e, before) == nil {
			t.Fatalf("%s waits until %v and has room at %v", r.ID, at, before)
		}
	}
	if still := b.refusing(e, at); still != nil {
		t.Fatalf("%s waits until %v and %q have no room then", r.ID, at, names(still))
	}
	e.booked, e.at = true, at
	b.entries = append(b.entries, e)
}

// expire forgets bookings that nobody has asked for in time.
func (b *book) expire(now time.Time) {
	b.entries = slices.DeleteFunc(b.entries, func(e entry) bool {
		return e.booked && int64(seconds(e.at.Add(bookingHeld).UnixMilli())) <= now.Unix()
	})
}
