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
)

// The measures of all charts, in SVG units.
const (
	chartWidth  = 1000.0
	chartLeft   = 170.0 // room for names and numbers
	chartHeight = 150.0
	barHeight   = 16.0
)

// axis is the time that all charts of a page share.
type axis struct {
	from, to time.Time
}

func (a axis) x(t time.Time) float64 {
	part := float64(t.Sub(a.from)) / float64(a.to.Sub(a.from))
	return chartLeft + min(max(part, 0), 1)*(chartWidth-chartLeft-10)
}

// seconds is how long a step of the rates is: about 200 steps in all.
func (a axis) step() time.Duration {
	return max(time.Second, (a.to.Sub(a.from) / 200).Round(time.Second))
}

// ticks draws a line at round times, named where named is set.
func (a axis) ticks(b *strings.Builder, height float64, named bool) {
	every := time.Second
	for _, d := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour} {
		if every = d; a.to.Sub(a.from)/d <= 12 {
			break
		}
	}
	for t := time.Duration(0); t <= a.to.Sub(a.from); t += every {
		x := a.x(a.from.Add(t))
		fmt.Fprintf(b, `<line class="tick" x1="%.1f" x2="%.1f" y1="0" y2="%.0f"/>`, x, x, height)
		if named {
			fmt.Fprintf(b, `<text class="scale" x="%.1f" y="%.0f" text-anchor="middle">%v</text>`, x, height+13, t)
		}
	}
}

// series is one line of a chart.
type series struct {
	class  string // of its colour: c1, c2 …
	name   string
	points []point
}

type point struct {
	at    time.Time
	value float64
}

// lines draws series over time, from zero to their greatest value.
func lines(a axis, unit string, list []series) template.HTML {
	top := 1.0
	for _, s := range list {
		for _, p := range s.points {
			top = max(top, p.value)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 -8 %.0f %.0f" role="img">`, chartWidth, chartHeight+28)
	a.ticks(&b, chartHeight, true)
	y := func(v float64) float64 { return chartHeight * (1 - v/top) }
	for _, part := range []float64{0, 0.5, 1} {
		fmt.Fprintf(&b, `<line class="grid" x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f"/><text class="scale" x="%.0f" y="%.1f" text-anchor="end">%s</text>`,
			chartLeft, chartWidth-10, y(part*top), y(part*top), chartLeft-6, y(part*top)+4, number(part*top))
	}
	fmt.Fprintf(&b, `<text class="scale" x="0" y="4">%s</text>`, html.EscapeString(unit))
	for i, s := range list {
		var path strings.Builder
		for j, p := range s.points {
			fmt.Fprintf(&path, "%c%.1f,%.1f", "ML"[min(j, 1)], a.x(p.at), y(p.value))
		}
		fmt.Fprintf(&b, `<path class="line %s" d="%s"><title>%s</title></path>`, s.class, path.String(), html.EscapeString(s.name))
		if len(list) <= 4 {
			fmt.Fprintf(&b, `<text class="name %s" x="0" y="%d">%s</text>`, s.class, 24+16*i, html.EscapeString(s.name))
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // all names in it are escaped
}

func number(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.0fk", v/1000)
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// bars draws events over time, one row for each target.
func bars(a axis, events []invariants.Event, reports []invariants.EventReport) template.HTML {
	var targets []string
	for _, e := range events {
		if !slices.Contains(targets, e.Target) {
			targets = append(targets, e.Target)
		}
	}
	slices.SortFunc(targets, func(x, y string) int { return cmp.Or(len(x)-len(y), cmp.Compare(x, y)) })
	height := barHeight * float64(len(targets))
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 -4 %.0f %.0f" role="img">`, chartWidth, height+24)
	a.ticks(&b, height, true)
	for i, target := range targets {
		fmt.Fprintf(&b, `<text class="scale" x="0" y="%.1f">%s</text>`, barHeight*(float64(i)+0.75), html.EscapeString(target))
	}
	for i, e := range events {
		from, to := a.x(e.Start), a.x(e.End)
		title := fmt.Sprintf("%s of %s at %.1f s", e.Kind, e.Target, e.Start.Sub(a.from).Seconds())
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
func (r *Result) rates(a axis, provider string) (points []point) {
	step := a.step()
	counts := make([]int, int(a.to.Sub(a.from)/step)+1)
	for _, s := range r.Ledgers.Sends.Entries {
		if i := int(s.At.Sub(a.from) / step); s.Provider == provider && s.Accepted && i >= 0 && i < len(counts) {
			counts[i]++
		}
	}
	for i, n := range counts {
		points = append(points, point{a.from.Add(time.Duration(i)*step + step/2), float64(n) / step.Seconds()})
	}
	return points
}

// produced are the records acknowledged in each step of time.
func (r *Result) produced(a axis) (points []point) {
	step := a.step()
	counts := make([]int, int(a.to.Sub(a.from)/step)+1)
	for _, p := range r.Ledgers.Producer.Entries {
		if i := int(p.At.Sub(a.from) / step); i >= 0 && i < len(counts) {
			counts[i]++
		}
	}
	for i, n := range counts {
		points = append(points, point{a.from.Add(time.Duration(i)*step + step/2), float64(n) / step.Seconds()})
	}
	return points
}

// lags are the records not committed, of the lane's own topic and of those
// beside it; commits are the offsets of each partition of the former.
func (r *Result) lags() (lag []series, commits []series) {
	type sum struct{ own, beside float64 }
	sums := map[time.Time]*sum{}
	byPartition := map[invariants.Partition][]point{}
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
		byPartition[s.Partition] = append(byPartition[s.Partition], point{s.At, float64(s.Committed)})
	}
	var own, beside []point
	for _, t := range times {
		own, beside = append(own, point{t, sums[t].own}), append(beside, point{t, sums[t].beside})
	}
	lag = []series{{"c1", "not committed", thin(own)}, {"c2", "waiting to retry", thin(beside)}}
	for _, p := range slices.SortedFunc(maps.Keys(byPartition), func(x, y invariants.Partition) int { return int(x.ID - y.ID) }) {
		commits = append(commits, series{fmt.Sprintf("c%d", 1+int(p.ID)%6), fmt.Sprintf("%s/%d", p.Topic, p.ID), thin(byPartition[p])})
	}
	return lag, commits
}

// thin keeps about a thousand points: more cannot be seen.
func thin(points []point) []point {
	every := max(1, len(points)/1000)
	var kept []point
	for i := 0; i < len(points); i += every {
		kept = append(kept, points[i])
	}
	return kept
}
