package dashboard

import (
	"fmt"
	"slices"
	"time"
)

// showDoubts says what is approximate of what is shown, and why: curves go back a day.
func (f *Feed) showDoubts(s *Snapshot, live []*source, limit int) {
	dayAgo := f.now.Add(-minutes * time.Minute)
	gaps := make([]Gap, 0, len(f.gaps))
	for _, g := range slices.Backward(f.gaps) {
		if g.To.After(dayAgo) {
			gaps = append(gaps, Gap{g.source, stamp(g.From), stamp(g.To)})
		}
	}
	s.Gaps = bound(s, "gaps", gaps, limit/5)
	says := func(format string, args ...any) { s.Approximate = append(s.Approximate, fmt.Sprintf(format, args...)) }
	s.Approximate = []string{}
	if !f.read {
		says("the last hour is still being read: counts are too low")
	}
	says("queued is what the groups have not committed, less what live workers have open: right to about a second of work")
	if len(live) == 0 {
		says("no worker tells its state: in progress, routes and stalls are not known")
	}
	if !f.wasAhead.IsZero() && f.now.Sub(f.wasAhead) < minutes*time.Minute {
		says("the clock of this dashboard was ahead until it was set back at %s: counts of before are too low", f.wasAhead.UTC().Format(time.TimeOnly))
	}
	off := 0
	for _, one := range live {
		if one.stateBy.Sub(one.stateAt).Abs() > silence {
			off++
		}
	}
	if off > 0 {
		says("the clocks of %d workers are off, or what they tell comes late: their counts are at wrong times, or too old to be shown", off)
	}
	switch {
	case f.positions.failed != "" && f.positions.at.IsZero():
		says("queues are not known: %s", f.positions.failed)
	case f.positions.failed != "":
		says("queues are %s old: %s", s.At.Sub(f.positions.at).Round(time.Second), f.positions.failed)
	case f.positions.at.IsZero():
		says("queues are not known yet")
	}
	if f.positions.unknown > 0 {
		says("Kafka does not tell the offsets of %d partitions: queued and waiting are too low", f.positions.unknown)
	}
	if slices.ContainsFunc(s.Limits.Rules, func(r Rule) bool { return r.Users1h > 0 }) {
		says("how many users a rule limited is estimated: two of three times it is right to 3 %%, and too low while workers of earlier versions run")
	}
	killed := 0
	for _, d := range f.sources.gone {
		if !d.last && d.heard.After(dayAgo) {
			killed++
		}
	}
	if killed > 0 {
		says("%d workers ended without a word: curves lack up to a second of each, and so do outcomes of workers that tell no ranges", killed)
	}
	if missing := f.tally.MissingSince(f.totals.since()); missing > 0 {
		says("of %d offsets nobody told what became of their records: outcomes are too low", missing)
	}
	if len(gaps) > 0 {
		says("push.events has gaps, named below: counts within them are too low")
	}
	missing := int64(0)
	for _, one := range f.sources.byID {
		if !one.told && !one.lacking.IsZero() && f.now.Sub(one.lacking) >= silence {
			missing += one.missing()
		}
	}
	if missing > 0 {
		says("%d records of push.events are missing, and no gap is told", missing)
	}
	if unread := f.unread.sum(dayAgo.Unix()/60+1, f.now.Unix()/60+1); unread > 0 {
		says("%d records of push.events could not be read", unread)
	}
	if s.Filter != (Kind{Lane: s.Filter.Lane}) {
		says("curves and the numbers of now know lanes and nothing else of the filter")
	}
}
