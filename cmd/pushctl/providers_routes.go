package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushfleet/pushfleet/cmd/terminal"
	"github.com/pushfleet/pushfleet/events"
	"github.com/pushfleet/pushfleet/push"
)

// fleetView is the JSON answer of `pushctl providers ls`.
type fleetView struct {
	Workers []workerRow `json:"workers"`
	Routes  []routeRow  `json:"routes"`
}

// workerRow is a worker that is there.
type workerRow struct {
	Worker      string    `json:"worker"`
	Source      string    `json:"source"`
	Release     string    `json:"release,omitempty"`
	At          time.Time `json:"at"`
	Started     time.Time `json:"started"`
	Memory      int64     `json:"memory"`
	MemoryBound int64     `json:"memory_bound"`
	RepeatBound int64     `json:"repeat_bound"`
	Omitted     int       `json:"omitted,omitempty"`
}

// routeRow is a route at all workers together. Its gate is the worst of theirs.
type routeRow struct {
	Route       string               `json:"route"`
	Gate        string               `json:"gate"`
	Stopped     int                  `json:"stopped"` // workers whose gate is not open
	Until       time.Time            `json:"until,omitzero"`
	Word        string               `json:"word,omitempty"`
	Credential  string               `json:"credential,omitempty"` // that the provider refuses
	Remedy      string               `json:"remedy,omitempty"`     // what to do about that
	RateName    string               `json:"rate_name,omitempty"`
	Rate        float64              `json:"rate,omitempty"`
	Base        float64              `json:"base,omitempty"`
	Taken       float64              `json:"taken"` // pushes a second, of all workers
	Connections int                  `json:"connections"`
	Streams     int                  `json:"streams"`
	InFlight    int64                `json:"in_flight"`
	Answers     []events.AnswerState `json:"answers"`
	Quarantined int                  `json:"quarantined,omitempty"` // campaigns and senders that are stopped
	Workers     []routeShare         `json:"workers"`

	told time.Time // when the worker whose rate it is told it
}

// routeShare is a route at one worker.
type routeShare struct {
	Worker string `json:"worker"`
	Source string `json:"source"`
	events.RouteState
}

// gateOrder is from well to ill.
var gateOrder = []string{"open", "probing", "paused", "halted"}

// routesOf are the routes of all workers, by name.
func routesOf(there []events.Worker) []routeRow {
	rows := []routeRow{}
	for _, w := range there {
		for _, s := range w.State.Routes {
			name := s.Provider + "/" + s.App
			if s.Environment != "" {
				name += "/" + s.Environment
			}
			i := slices.IndexFunc(rows, func(r routeRow) bool { return r.Route == name })
			if i < 0 {
				i, rows = len(rows), append(rows, routeRow{Route: name, Gate: gateOrder[0], Answers: []events.AnswerState{}})
			}
			rows[i].add(w, s)
		}
	}
	for i := range rows {
		slices.SortStableFunc(rows[i].Answers, func(a, b events.AnswerState) int { return cmp.Compare(b.N, a.N) })
	}
	slices.SortFunc(rows, func(a, b routeRow) int { return strings.Compare(a.Route, b.Route) })
	return rows
}

// add adds what one worker says.
func (r *routeRow) add(w events.Worker, s events.RouteState) {
	r.Workers = append(r.Workers, routeShare{w.State.Worker, w.Source, s})
	r.Taken += s.Share
	r.Connections += s.Connections
	r.Streams += s.Streams
	r.InFlight += s.InFlight
	r.Quarantined = max(r.Quarantined, s.Quarantined)
	if s.Gate != gateOrder[0] {
		r.Stopped++
	}
	if slices.Index(gateOrder, s.Gate) > slices.Index(gateOrder, r.Gate) {
		r.Gate = s.Gate
	}
	if s.Until.After(r.Until) {
		r.Until = s.Until
	}
	r.Word = cmp.Or(r.Word, s.Word)
	if r.Credential == "" {
		r.Credential, r.Remedy = s.Credential, s.Remedy
	}
	if !w.At.Before(r.told) {
		r.told, r.RateName, r.Rate, r.Base = w.At, s.RateName, s.Rate, s.Base
	}
	for _, a := range s.Answers {
		if i := slices.IndexFunc(r.Answers, func(o events.AnswerState) bool { return o.Class == a.Class && o.Reason == a.Reason }); i >= 0 {
			r.Answers[i].N += a.N
		} else {
			r.Answers = append(r.Answers, a)
		}
	}
}

// gateCell is a route's gate in words.
func (r *routeRow) gateCell() string {
	words := []string{r.Gate}
	if r.Stopped > 0 && len(r.Workers) > 1 {
		words = append(words, fmt.Sprintf("at %d of %d", r.Stopped, len(r.Workers)))
	}
	if !r.Until.IsZero() {
		words = append(words, "until "+r.Until.UTC().Format("15:04:05"))
	}
	if r.Word != "" {
		words = append(words, r.Word)
	}
	if r.Quarantined > 0 {
		words = append(words, fmt.Sprintf("(%d in quarantine)", r.Quarantined))
	}
	return strings.Join(words, " ")
}

// rateCell is a rate now, and what it is configured as if that is another.
func (r *routeRow) rateCell() string {
	switch {
	case r.Rate == 0:
		return "no limit"
	case r.Base == 0:
		return fmt.Sprintf("%.0f/s (base: no limit)", r.Rate)
	}
	return fmt.Sprintf("%.0f/s of %.0f/s", r.Rate, r.Base)
}

// mostShares is how many workers and answers a cell names.
const mostShares = 4

// sharesCell is what the workers take of all that is taken, most first.
func (r *routeRow) sharesCell() string {
	by := slices.Clone(r.Workers)
	slices.SortStableFunc(by, func(a, b routeShare) int { return cmp.Compare(b.Share, a.Share) })
	return listed(len(by), func(i int) string {
		if r.Taken == 0 {
			return by[i].Worker + " 0 %"
		}
		return fmt.Sprintf("%s %.0f %%", by[i].Worker, 100*by[i].Share/r.Taken)
	})
}

// answersCell is the mix of the last minute's answers.
func (r *routeRow) answersCell() string {
	total := int64(0)
	for _, a := range r.Answers {
		total += a.N
	}
	return listed(len(r.Answers), func(i int) string {
		a := r.Answers[i]
		return strings.TrimSpace(a.Class+" "+a.Reason) + fmt.Sprintf(" %.1f %%", 100*float64(a.N)/float64(max(total, 1)))
	})
}

// listed joins the first texts of so many, and says how many more there are.
func listed(n int, text func(i int) string) string {
	var texts []string
	for i := range min(n, mostShares) {
		texts = append(texts, text(i))
	}
	if n > mostShares {
		texts = append(texts, fmt.Sprintf("%d more", n-mostShares))
	}
	return strings.Join(texts, ", ")
}

func explainRoutes(there []events.Worker) terminal.Answer {
	v := fleetView{Workers: []workerRow{}, Routes: routesOf(there)}
	omitted := 0
	for _, w := range there {
		s := w.State
		omitted += s.Omitted
		v.Workers = append(v.Workers, workerRow{Worker: s.Worker, Source: w.Source, Release: s.Release, At: w.At, Started: s.Started,
			Memory: s.Memory, MemoryBound: s.MemoryBound, RepeatBound: s.RepeatBound, Omitted: s.Omitted})
	}
	t := terminal.Table{Columns: []string{"route", "gate", "rate", "taken", "workers", "connections", "streams", "in flight", "last minute"}}
	for i := range v.Routes {
		r := &v.Routes[i]
		t.Add(r.Route, r.gateCell(), r.rateCell(), fmt.Sprintf("%.0f/s", r.Taken), r.sharesCell(),
			strconv.Itoa(r.Connections), strconv.Itoa(r.Streams), strconv.FormatInt(r.InFlight, 10), r.answersCell())
	}
	after := ""
	switch {
	case len(there) == 0:
	case len(v.Routes) == 0:
		after = fmt.Sprintf("%d workers, without routes: the configuration has no app with %s", len(there), push.PlatformNames(" or "))
	default:
		after = fmt.Sprintf("%d workers", len(there))
	}
	for i := range v.Routes {
		if r := &v.Routes[i]; r.Credential != "" {
			after += "\n" + terminal.Word(r.Route) + ": the provider refuses key " + terminal.Word(r.Credential) + ": " + terminal.Word(r.Remedy)
		}
	}
	if omitted > 0 {
		after += fmt.Sprintf("; %d entries did not fit in their records", omitted)
	}
	return terminal.Answer{Value: v, Table: t, After: after}
}
