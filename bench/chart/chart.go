// Package chart draws what was measured over time as SVG: a few lines on one axis, for the pages and plots of the benches.
package chart

import (
	"fmt"
	"html"
	"html/template"
	"strings"
	"time"
)

// The measures of all charts, in SVG units.
const (
	Width  = 1000.0
	Left   = 170.0 // room for names and numbers
	right  = Width - 10
	height = 150.0
	above  = 8.0  // the first line of text
	below  = 20.0 // the times
)

// Axis is the time that all charts of a page share.
type Axis struct{ From, To time.Time }

// X is where a moment is; what is outside is at the edge.
func (a Axis) X(t time.Time) float64 {
	part := float64(t.Sub(a.From)) / float64(a.To.Sub(a.From))
	return Left + min(max(part, 0), 1)*(right-Left)
}

// Step is how long a step of a rate is: about 200 steps in all.
func (a Axis) Step() time.Duration {
	return max(time.Second, (a.To.Sub(a.From) / 200).Round(time.Second))
}

// Ticks draws a line at round times, and names them.
func (a Axis) Ticks(b *strings.Builder, height float64) {
	every := time.Second
	for _, d := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour} {
		if every = d; a.To.Sub(a.From)/d <= 12 {
			break
		}
	}
	for t := time.Duration(0); t <= a.To.Sub(a.From); t += every {
		x := a.X(a.From.Add(t))
		fmt.Fprintf(b, `<line class="tick" x1="%.1f" x2="%.1f" y1="0" y2="%.0f"/>`, x, x, height)
		fmt.Fprintf(b, `<text class="scale" x="%.1f" y="%.0f" text-anchor="middle">%v</text>`, x, height+13, t)
	}
}

// Series is one line of a chart.
type Series struct {
	Class  string // of its colour: c1, c2 …
	Name   string
	Points []Point
}

// Point is a value at a moment.
type Point struct {
	At    time.Time
	Value float64
}

// Lines draws series over time, from zero to their greatest value.
func Lines(a Axis, unit string, list []Series) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 %.0f %.0f %.0f" role="img">`, -above, Width, above+height+below)
	drawLines(&b, a, unit, list)
	b.WriteString(`</svg>`)
	return template.HTML(b.String()) // all names in it are escaped
}

func drawLines(b *strings.Builder, a Axis, unit string, list []Series) {
	top := 1.0
	for _, s := range list {
		for _, p := range s.Points {
			top = max(top, p.Value)
		}
	}
	a.Ticks(b, height)
	y := func(v float64) float64 { return height * (1 - v/top) }
	for _, part := range []float64{0, 0.5, 1} {
		fmt.Fprintf(b, `<line class="grid" x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f"/><text class="scale" x="%.0f" y="%.1f" text-anchor="end">%s</text>`,
			Left, right, y(part*top), y(part*top), Left-6, y(part*top)+4, number(part*top))
	}
	fmt.Fprintf(b, `<text class="scale" x="0" y="4">%s</text>`, html.EscapeString(unit))
	for i, s := range list {
		var path strings.Builder
		for j, p := range s.Points {
			fmt.Fprintf(&path, "%c%.1f,%.1f", "ML"[min(j, 1)], a.X(p.At), y(p.Value))
		}
		fmt.Fprintf(b, `<path class="line %s" d="%s"><title>%s</title></path>`, s.Class, path.String(), html.EscapeString(s.Name))
		if len(list) <= 4 {
			fmt.Fprintf(b, `<text class="name %s" x="0" y="%d">%s</text>`, s.Class, 24+16*i, html.EscapeString(s.Name))
		}
	}
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

// Thin keeps about a thousand points: more cannot be seen.
func Thin(points []Point) []Point {
	every := max(1, len(points)/1000)
	var kept []Point
	for i := 0; i < len(points); i += every {
		kept = append(kept, points[i])
	}
	return kept
}
