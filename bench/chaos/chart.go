//go:build unix

package chaos

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chart"
)

// barHeight is that of an event, in SVG units.
const barHeight = 16.0

// bars draws events over time, one row for each target.
func bars(a chart.Axis, events []invariants.Event, reports []invariants.EventReport) template.HTML {
	var targets []string
	for _, e := range events {
		if !slices.Contains(targets, e.Target) {
			targets = append(targets, e.Target)
		}
	}
	slices.SortFunc(targets, func(x, y string) int { return cmp.Or(len(x)-len(y), cmp.Compare(x, y)) })
	height := barHeight * float64(len(targets))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 -4 %.0f %.0f" role="img">`, chart.Width, height+24)
	a.Ticks(&b, height)
	for i, target := range targets {
		fmt.Fprintf(&b, `<text class="scale" x="0" y="%.1f">%s</text>`, barHeight*(float64(i)+0.75), html.EscapeString(target))
	}
	for i, e := range events {
		from, to := a.X(e.Start), a.X(e.End)
		title := fmt.Sprintf("%s of %s at %.1f s", e.Kind, e.Target, e.Start.Sub(a.From).Seconds())
		if d := e.End.Sub(e.Start); d >= 100*time.Millisecond {
			title += fmt.Sprintf(", for %v", d.Round(100*time.Millisecond))
		}
		if e.Repeats > 0 {
			title += fmt.Sprintf("; %d pushes again, exposed %d, bound %d", reports[i].Repeated, len(e.Exposed), e.Repeats)
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.0f" rx="2"><title>%s</title></rect>`, barClass(&e), from,
			barHeight*float64(slices.Index(targets, e.Target))+2, max(3, to-from), barHeight-4, html.EscapeString(title))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // all names in it are escaped
}

// barClass is the colour of an event: of a death, of something that asks or
// tells, or of an absence.
func barClass(e *invariants.Event) string {
	switch Fault(e.Kind) {
	case Kill, KillAll, Wipe:
		return "death"
	case Stop, Join, Leave, GoAway:
		return "calm"
	}
	return "absence"
}

// rates are the pushes accepted in each step of time.
func (r *Result) rates(a chart.Axis, provider string) (points []chart.Point) {
	step := a.Step()
	counts := make([]int, int(a.To.Sub(a.From)/step)+1)
	for _, s := range r.Ledgers.Sends.Entries {
		if i := int(s.At.Sub(a.From) / step); s.Provider == provider && s.Accepted && i >= 0 && i < len(counts) {
			counts[i]++
		}
	}
	for i, n := range counts {
		points = append(points, chart.Point{At: a.From.Add(time.Duration(i)*step + step/2), Value: float64(n) / step.Seconds()})
	}
	return points
}

// produced are the records acknowledged in each step of time.
func (r *Result) produced(a chart.Axis) (points []chart.Point) {
	step := a.Step()
	counts := make([]int, int(a.To.Sub(a.From)/step)+1)
	for _, p := range r.Ledgers.Producer.Entries {
		if i := int(p.At.Sub(a.From) / step); i >= 0 && i < len(counts) {
			counts[i]++
		}
	}
	for i, n := range counts {
		points = append(points, chart.Point{At: a.From.Add(time.Duration(i)*step + step/2), Value: float64(n) / step.Seconds()})
	}
	return points
}

// lags are the records not committed, of the lane's own topic and of those
// beside it; commits are the offsets of each partition of the former.
func (r *Result) lags() (lag []chart.Series, commits []chart.Series) {
	type sum struct{ own, beside float64 }
	sums := map[time.Time]*sum{}
	byPartition := map[invariants.Partition][]chart.Point{}
	var times []time.Time
	for _, s := range r.Ledgers.Offsets.Entries {
		t := sums[s.At]
		if t == nil {
			t = &sum{}
			sums[s.At] = t
			times = append(times, s.At)
		}
		if s.Waits {
			t.beside += float64(s.End - s.Committed)
			continue
		}
		t.own += float64(s.End - s.Committed)
		byPartition[s.Partition] = append(byPartition[s.Partition], chart.Point{At: s.At, Value: float64(s.Committed)})
	}
	var own, beside []chart.Point
	for _, t := range times {
		own, beside = append(own, chart.Point{At: t, Value: sums[t].own}), append(beside, chart.Point{At: t, Value: sums[t].beside})
	}
	lag = []chart.Series{{Class: "c1", Name: "not committed", Points: chart.Thin(own)}, {Class: "c2", Name: "waiting to retry", Points: chart.Thin(beside)}}
	for _, p := range slices.SortedFunc(maps.Keys(byPartition), func(x, y invariants.Partition) int { return int(x.ID - y.ID) }) {
		commits = append(commits, chart.Series{Class: fmt.Sprintf("c%d", 1+int(p.ID)%6), Name: fmt.Sprintf("%s/%d", p.Topic, p.ID), Points: chart.Thin(byPartition[p])})
	}
	return lag, commits
}
