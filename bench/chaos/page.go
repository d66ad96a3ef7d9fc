//go:build unix

package chaos

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/pushfleet/pushfleet/bench/chaos/invariants"
	"github.com/pushfleet/pushfleet/bench/chart"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Name, About, Mode, Version, Began, Replay string
	Seed                                      uint64
	Clean                                     bool
	Report                                    *invariants.Report
	Exposed, Faults                           int
	Heal                                      time.Duration
	Events, Rates, Lag, Commits               template.HTML
	Promises                                  []promise
	Kinds, Outcomes                           []tally
	Worst                                     invariants.Worst
}

type promise struct {
	Name, Meaning string
	Unobserved    bool
	Broken        int
	Findings      []string
}

type tally struct {
	Name                   string
	Count, Repeated, Bound int
}

// WritePage writes the run as one HTML page that needs nothing else: a timeline
// of faults, rates, lag and commits, and every promise. version is the commit
// that was tested.
func (r *Result) WritePage(w io.Writer, version string) error {
	rep, s := r.Report, r.Summary(version)
	a := chart.Axis{From: r.Began, To: r.Ended.Add(time.Second)}
	p := page{Name: r.Scenario.Name, About: r.Scenario.About, Mode: r.Mode, Version: version, Began: r.Began.Format(time.DateTime), Replay: r.Replay(),
		Seed: r.Seed, Clean: rep.Clean(), Report: rep, Exposed: s.Exposed, Faults: len(r.Ledgers.Events),
		Heal: round(r.Ended.Sub(r.Began.Add(r.Length)))}
	p.Events = bars(a, r.Ledgers.Events, rep.Events)
	p.Rates = chart.Lines(a, "a second", []chart.Series{
		{Class: "c1", Name: "accepted by APNs", Points: r.rates(a, APNS)}, {Class: "c2", Name: "accepted by FCM", Points: r.rates(a, FCM)},
		{Class: "c3", Name: "records produced", Points: r.produced(a)},
	})
	lag, commits := r.lags()
	p.Lag, p.Commits = chart.Lines(a, "records", lag), chart.Lines(a, "offset", commits)
	for _, i := range invariants.All() {
		p.Promises = append(p.Promises, promise{string(i), i.Meaning(), slices.Contains(rep.Unobserved, i), rep.Violations[i], rep.Findings[i]})
	}
	names, count, repeated, bound := r.kinds()
	for _, name := range names {
		p.Kinds = append(p.Kinds, tally{name, count[name], repeated[name], bound[name]})
	}
	for _, o := range slices.Sorted(maps.Keys(rep.Outcomes)) {
		p.Outcomes = append(p.Outcomes, tally{Name: o.String(), Count: rep.Outcomes[o]})
	}
	p.Worst = invariants.Worst{Delivery: round(rep.Worst.Delivery), Standstill: round(rep.Worst.Standstill), Excused: round(rep.Worst.Excused),
		Back: round(rep.Worst.Back), Sample: round(rep.Worst.Sample)}
	if err := pageTemplate.Execute(w, &p); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}
