package limits

import "time"

// unit is a calendar window as it is stored; 0 = none.
type unit uint8

const (
	minuteUnit unit = 1 + iota
	hourUnit
	dayUnit
)

func calendarUnit(c Calendar) unit {
	switch c {
	case Minute:
		return minuteUnit
	case Hour:
		return hourUnit
	case Day:
		return dayUnit
	}
	return 0
}

// span is a window [start, end) of a calendar, Unix ms.
type span struct {
	unit       unit
	start, end int64
}

func (s *span) contains(at int64) bool { return s.start <= at && at < s.end }

// calendar says in which window of the user's clock a time lies. The window in
// which something was spent last runs to its end, whatever zone the user moves
// to meanwhile, and the first window of the new zone begins there: so every
// time lies in one window.
type calendar struct {
	running []span // at most one for each unit
	zone    *time.Location
	days    *days
}

func (c *calendar) window(u unit, at int64) span {
	for i := range c.running {
		r := &c.running[i]
		switch {
		case r.unit != u:
		case r.contains(at):
			return *r
		default:
			s := c.natural(u, at)
			if at >= r.end {
				s.start = max(s.start, r.end)
			} else {
				s.end = min(s.end, r.start)
			}
			return s
		}
	}
	return c.natural(u, at)
}

// natural is the window of the user's zone.
func (c *calendar) natural(u unit, at int64) span {
	switch u {
	case minuteUnit:
		// No zone of today is off by parts of a minute.
		start := floor(at, time.Minute.Milliseconds())
		return span{u, start, start + time.Minute.Milliseconds()}
	case hourUnit:
		_, offset := time.UnixMilli(at).In(c.zone).Zone()
		shift := int64(offset) * 1000
		start := floor(at+shift, time.Hour.Milliseconds()) - shift
		return span{u, start, start + time.Hour.Milliseconds()}
	}
	return c.days.window(c.zone, at)
}

// pin keeps the window of at running; an older one does not replace it.
func (c *calendar) pin(u unit, at int64) {
	s := c.window(u, at)
	for i := range c.running {
		if r := &c.running[i]; r.unit == u {
			if s.end > r.end {
				*r = s
			}
			return
		}
	}
	c.running = append(c.running, s)
}

// days remembers the latest day of a few zones: most users of a batch share
// them, and a day of a zone takes a microsecond to find.
type days [4]struct {
	zone *time.Location
	span span
}

func (d *days) window(zone *time.Location, at int64) span {
	for i := range d {
		if d[i].zone == zone && d[i].span.contains(at) {
			return d[i].span
		}
	}
	copy(d[1:], d[:len(d)-1])
	d[0].zone, d[0].span = zone, dayOf(zone, at)
	return d[0].span
}

func dayOf(zone *time.Location, at int64) span {
	y, m, d := time.UnixMilli(at).In(zone).Date()
	return span{dayUnit, dayStart(zone, y, m, d), dayStart(zone, y, m, d+1)}
}

// dayStart is the first moment of a date. Where the clock is changed at
// midnight, time.Date may name another one.
func dayStart(zone *time.Location, year int, month time.Month, day int) int64 {
	midnight := time.Date(year, month, day, 0, 0, 0, 0, zone)
	date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC) // with day 32 brought into range
	reached := func(t time.Time) bool {
		y, m, d := t.Date()
		return !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(date)
	}
	// Where midnight comes twice, the first counts.
	if reached(midnight) && !reached(midnight.Add(-time.Millisecond)) && !reached(midnight.Add(-time.Hour)) {
		return midnight.UnixMilli()
	}
	low, high := midnight.Add(-maxDay), midnight.Add(maxDay)
	for high.Sub(low) > time.Millisecond {
		if mid := low.Add(high.Sub(low) / 2).Truncate(time.Millisecond); reached(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high.UnixMilli()
}

// maxDay is the longest day: some clocks went back by a whole day, once.
const maxDay = 48 * time.Hour

// floor is the largest multiple of step that is not above at.
func floor(at, step int64) int64 {
	rest := at % step
	if rest < 0 {
		rest += step
	}
	return at - rest
}
