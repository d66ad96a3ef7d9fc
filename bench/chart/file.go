package chart

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Panel is one chart of a File.
type Panel struct {
	Title, Unit string
	Series      []Series
}

// The measures of a File.
const (
	margin    = 20.0
	titleLine = 22.0
	gap       = 14.0 // between panels
)

// style is what a page around the charts would say; a file stands alone.
const style = `<style>
svg { background: #fbfbfa; font: 13px system-ui, sans-serif; }
text { fill: #1c2024; } .title { font-size: 17px; font-weight: 600; } .soft, .scale { fill: #667079; } .scale { font-size: 11px; } .name { font-size: 12px; }
.tick, .grid { stroke: #dfe3e6; } .line { fill: none; stroke-width: 1.6; }
.c1 { stroke: #2563a8; } .c2 { stroke: #c26a17; } .c3 { stroke: #1a7f4b; } .c4 { stroke: #8a4bb0; }
text.c1 { stroke: none; fill: #2563a8; } text.c2 { stroke: none; fill: #c26a17; } text.c3 { stroke: none; fill: #1a7f4b; } text.c4 { stroke: none; fill: #8a4bb0; }
</style>`

// File writes panels under each other as one SVG file that needs nothing else, below a title and lines of text.
func File(w io.Writer, title string, text []string, a Axis, panels []Panel) error {
	var b strings.Builder
	total := margin + titleLine*float64(1+len(text)) + float64(len(panels))*(titleLine+above+height+below+gap) + margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img">%s`, Width+2*margin, total, style)
	y := margin + titleLine/2
	line := func(class, s string) {
		fmt.Fprintf(&b, `<text class="%s" x="%.0f" y="%.0f">%s</text>`, class, margin, y, html.EscapeString(s))
		y += titleLine
	}
	line("title", title)
	for _, t := range text {
		line("soft", t)
	}
	for _, p := range panels {
		y += gap
		line("head", p.Title)
		fmt.Fprintf(&b, `<g transform="translate(%.0f %.0f)">`, margin, y-titleLine/2+above)
		drawLines(&b, a, p.Unit, p.Series)
		b.WriteString(`</g>`)
		y += above + height + below
	}
	b.WriteString("</svg>\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}
